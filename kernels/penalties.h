// Penalties, which make recent values of a sequence less likely, and the caller's logit biases.
//
// The order, in fp32, is that of Hugging Face's processors and of vLLM: repetition, frequency and
// presence, biases; then temperature and the filters of Sampling. Log-probabilities are computed
// from the model's own logits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace runnel {

// A term that is added to the logit of a value.
struct LogitBias {
  int32_t value = 0;
  float bias = 0.0F;

  friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

struct Penalties {
  // Greater than 0; 1: none. For each value among the recent ones: logit / repetition if the logit
  // is above 0, else logit * repetition.
  float repetition = 1.0F;
  // For each value that this call has sampled and that is among the recent values: logit -
  // frequency * (how often), then logit - presence. 0: none.
  float frequency = 0.0F;
  float presence = 0.0F;
  std::vector<LogitBias> logit_bias = {};  // ascending, each value once

  // Whether it needs the recent values.
  bool looks_back() const { return repetition != 1.0F || frequency != 0.0F || presence != 0.0F; }
  // Whether it changes any logit.
  bool any() const { return looks_back() || !logit_bias.empty(); }

  friend bool operator==(const Penalties&, const Penalties&) = default;
};

// The penalties of a slot's calls.
struct Penalized {
  std::shared_ptr<const Penalties> penalties;  // null: none
  int64_t from = 0;                            // the position where the call began to sample
};

// The penalties of one row of a batch, as plain data, which devices can read.
struct RowPenalties {
  float repetition = 1.0F;
  float frequency = 0.0F;
  float presence = 0.0F;
  int32_t biases = 0;      // how many
  int32_t first_bias = 0;  // the index of the first one among the batch's biases
  int64_t from = 0;        // as Penalized::from

  // `first`: first_bias.
  static RowPenalties of(const Penalized& penalized, int32_t first) {
    const Penalties& by = *penalized.penalties;
    return {.repetition = by.repetition,
            .frequency = by.frequency,
            .presence = by.presence,
            .biases = static_cast<int32_t>(by.logit_bias.size()),
            .first_bias = first,
            .from = penalized.from};
  }
  RUNNEL_DEVICE bool looks_back() const {
    return repetition != 1.0F || frequency != 0.0F || presence != 0.0F;
  }
  RUNNEL_DEVICE bool any() const { return looks_back() || biases > 0; }
};

// A slot's last values. Entry p % room has the value at position p, plus 1. 0 means none.
struct RecentRing {
  int32_t* entries = nullptr;
  int room = 0;  // 0: no value is kept

  RUNNEL_DEVICE void note(int64_t position, int32_t value) const {
    if (room > 0) entries[position % room] = value + 1;
  }
  // Calls each(position, value) for the values before `end`, ascending by position.
  template <typename Each>
  void before(int64_t end, const Each& each) const {
    for (int64_t at = end > room ? end - room : 0; at < end; ++at) {
      const int32_t entry = entries[at % room];
      if (entry > 0) each(at, entry - 1);
    }
  }
};

}  // namespace runnel
