// Samples from categorical rows with penalties. The block that samples a row changes the row's
// logits in place, chooses the value, and restores the logits before it computes log-probabilities.
// The numbers have the same bits as on the CPU (cpu/categorical.cc). A batch without penalties does
// not use this kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"
#include "kernels/penalties.h"

namespace runnel::cuda {

// Shared memory in addition to that of the sampling: for each entry of the ring the value and its
// logit, and for each bias the logit.
RUNNEL_DEVICE constexpr int64_t penalized_shared_bytes(int room) {
  return kCategoricalSharedBytes + (2 * int64_t{room} + kMaxLogitBiases) * 4;
}

// The penalties of the row that a block samples.
template <typename Block>
class PenalizedRow {
 public:
  static constexpr bool kAny = true;

  RUNNEL_DEVICE PenalizedRow(Block& block, const SampleArgs& args, const RowJob& job)
      : block_(block),
        logits_(const_cast<float*>(job.head)),  // restored when the kernel ends
        by_(args.recent.penalties[job.row]),
        biases_(args.recent.biases + by_.first_bias),
        ring_(job.recent),
        room_(by_.looks_back() ? ring_.room : 0),
        entries_(reinterpret_cast<int32_t*>(block.template shared<std::byte>() +
                                            kCategoricalSharedBytes)),
        given_(reinterpret_cast<float*>(entries_ + room_)),
        given_to_biases_(given_ + room_) {}

  // Changes the logits for a value at position `end`, after the recent values.
  RUNNEL_DEVICE void apply(int64_t end) {
    const int first = ring_.room > 0 ? static_cast<int>(end % ring_.room) : 0;
    block_.phase([&](int t) {
      RUNNEL_ROLL
      for (int i = t; i < room_; i += Block::kThreads) {
        entries_[i] = position(i, first, end) >= 0 ? ring_.entries[i] : 0;
        if (entries_[i] > 0) given_[i] = logits_[entries_[i] - 1];
      }
      RUNNEL_ROLL
      for (int i = t; i < by_.biases; i += Block::kThreads) {
        given_to_biases_[i] = logits_[biases_[i].value];
      }
    });
    block_.phase([&](int t) {
      RUNNEL_ROLL
      for (int i = t; i < room_; i += Block::kThreads) {
        if (entries_[i] > 0) penalize(i, first, end);
      }
    });
    block_.phase([&](int t) {
      RUNNEL_ROLL
      for (int i = t; i < by_.biases; i += Block::kThreads) {
        float& logit = logits_[biases_[i].value];
        logit = finite(logit) + biases_[i].bias;
      }
    });
  }

  RUNNEL_DEVICE void restore() {
    block_.phase([&](int t) {
      RUNNEL_ROLL
      for (int i = t; i < room_; i += Block::kThreads) {
        if (entries_[i] > 0) logits_[entries_[i] - 1] = given_[i];
      }
      RUNNEL_ROLL
      for (int i = t; i < by_.biases; i += Block::kThreads) {
        logits_[biases_[i].value] = given_to_biases_[i];
      }
    });
  }

 private:
  // The position of entry i. Entry `first` has the oldest position.
  RUNNEL_DEVICE int64_t position(int i, int first, int64_t end) const {
    return end + i - first - (i >= first ? room_ : 0);
  }

  // Penalizes the value of entry i, unless an entry before it has the same value.
  RUNNEL_DEVICE void penalize(int i, int first, int64_t end) {
    int sampled = 0;  // occurrences that this call has sampled
    for (int other = 0; other < room_; ++other) {
      if (entries_[other] != entries_[i]) continue;
      if (other < i) return;
      if (position(other, first, end) >= by_.from) ++sampled;
    }
    float logit = finite(given_[i]);
    logit = logit > 0.0F ? logit / by_.repetition : logit * by_.repetition;
    if (sampled > 0) {
      logit -= by_.frequency * static_cast<float>(sampled);
      logit -= by_.presence;
    }
    logits_[entries_[i] - 1] = logit;
  }

  Block& block_;
  float* const logits_;
  const RowPenalties by_;
  const LogitBias* const biases_;
  const RecentRing ring_;
  const int room_;          // the entries that are used
  int32_t* const entries_;  // [room]: a copy of the ring
  float* const given_;      // [room]: the logits of the entries
  float* const given_to_biases_;
};

// SampleKernel for a batch in which a row has penalties.
struct PenalizedKernel {
  using Args = SampleArgs;
  static constexpr int kThreads = kHeadThreads;
  static constexpr int kResident = 1;

  static constexpr Launch launch(const Args& args) {
    return {.blocks = args.rows.count, .shared_bytes = penalized_shared_bytes(args.recent.room)};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    SampleRows<Block> batch(block, args, 1);
    batch.advance();
    const RowJob row = batch.job(0);
    if (row.row < 0) return;
    sample_categorical(block, args.kind.values, row, batch.freeze(),
                       PenalizedRow<Block>(block, args, row));
  }
};

}  // namespace runnel::cuda
