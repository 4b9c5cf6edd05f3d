// Linear attention as a recurrence. A block computes one head of one row. S stays in registers for
// all inputs of the row, so that a step reads and writes each element of the state once. With
// replay (replay.h), it writes each element only once in several steps.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/replay.h"
#include "kernels/cuda/state_share.h"
#include "kernels/device.h"
#include "kernels/rules.h"

namespace runnel::cuda {

struct RecurArgs {
  Rows rows;
  const Control* control;
  Part part;
  StateForm form;
  int inputs;  // of all rows
  const float* q;
  const float* k;
  const float* v;
  int64_t q_stride, k_stride, v_stride;
  const float* gate;  // before the sigmoid; null: none
  int64_t gate_stride;
  FeatureMap map;  // not a random one
  int heads, dk, dv;
  float eps;
  States states;
  float* out;
  int64_t out_stride;
};

// kRows > 0: the rows of S that a thread keeps in registers; fits() must be true for the shape. 0:
// any shape, with S in memory. If there are too few threads, a thread then computes several
// columns.
template <typename Columns, int kRows, int kBlockThreads, StateForm kForm = StateForm::kPlain>
struct RecurKernel {
  using Args = RecurArgs;
  static constexpr int kThreads = kBlockThreads;
  static constexpr bool kReplays = kForm == StateForm::kReplay;
  static constexpr int kResident = kRows >= 16 ? 1 : kRows >= 8 ? 4 : kReplays ? 6 : 8;

  RUNNEL_DEVICE static bool fits(int dk, int dv) {
    const int across = dv / Columns::kWidth;
    return kRows > 0 && dv % Columns::kWidth == 0 && across <= kThreads && kThreads % across == 0 &&
           dk <= kThreads / across * kRows;
  }

  static constexpr Launch launch(int64_t rows, const RecurArgs& args) {
    return {.blocks = rows * args.heads,
            .shared_bytes =
                (log_offset(args) + (kReplays ? args.dk + log_floats(args.dk, args.dv) : 0)) * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int row = static_cast<int>(block.index() / args.heads);
    const int head = static_cast<int>(block.index() % args.heads);
    const RowPart part = part_of(args.rows, args.control, row, args.part);
    if (part.begin >= part.end) return;
    block.require(part.begin >= 0 && part.end <= args.inputs,
                  "recur: a row's inputs are among those given");
    HeadRun at = {
        .state = head_state(args, part.slot, head * state_floats(kForm, args.dk, args.dv)),
        .head = head,
        .begin = part.begin,
        .end = part.end,
        .logged = 0};
    if constexpr (kReplays) {
      at.logged = static_cast<int>((args.control[part.slot].position + part.skipped) % kReplay);
    }
    typename Block::template Each<Held> held;
    if constexpr (kRows > 0) {
      block.each([&](int t) {
        held[t] = load(state_share<Columns>(t, kThreads, args.dv), args, at.state);
      });
    }
    if constexpr (kReplays) catch_up(block, args, at, held);
    for (int input = at.begin; input < at.end; ++input) {
      step(block, args, at, input, held);
      if (kRows == 0 || input + 1 != at.last_flush(kForm)) continue;
      block.each([&](int t) {
        store(state_share<Columns>(t, kThreads, args.dv), args, held[t], at.state);
      });
    }
  }

 private:
  struct Held {
    Columns row[kRows > 0 ? kRows : 1];
  };

  // Shared memory: phi(q) [dk], phi(k) [dk], their products with z [dk], the groups' sums [groups]
  // [dv]; with replay, z [dk] and the log.
  RUNNEL_DEVICE static int64_t log_offset(const Args& args) {
    const int64_t groups = state_share<Columns>(0, kThreads, args.dv).groups;
    return 3 * int64_t{args.dk} + groups * args.dv;
  }

  RUNNEL_DEVICE static Columns* columns_at(float* state, int dv, int row, int column) {
    return reinterpret_cast<Columns*>(state + int64_t{row} * dv + column);
  }
  RUNNEL_DEVICE static Held load(StateShare share, const Args& args, float* state) {
    Held held{};
    for (int i = 0; i < kRows; ++i) {
      const int row = share.group + i * share.groups;
      if (row < args.dk) held.row[i] = *columns_at(state, args.dv, row, share.column);
    }
    return held;
  }
  RUNNEL_DEVICE static void store(StateShare share, const Args& args, const Held& held,
                                  float* state) {
    for (int i = 0; i < kRows; ++i) {
      const int row = share.group + i * share.groups;
      if (row < args.dk) *columns_at(state, args.dv, row, share.column) = held.row[i];
    }
  }

  // The gate of one head at one input.
  RUNNEL_DEVICE static LinearRule<ScalarMath> gate_at(const Args& args, int head, int input) {
    if (args.gate == nullptr) return {1.0F, 1.0F};
    return LinearRule<ScalarMath>::of(args.gate[input * args.gate_stride + head]);
  }

  // S = keep S + phi(k) v^T on one row of a share, and sum += phi(q) S. keep = 1 changes no bit.
  RUNNEL_DEVICE static void advance(Columns& row, float keep, float key, float query,
                                    const Columns& value, Columns& sum) {
    for (int j = 0; j < Columns::kWidth; ++j) {
      row.at[j] = std::fma(key, value.at[j], keep * row.at[j]);
      sum.at[j] = std::fma(query, row.at[j], sum.at[j]);
    }
  }

  // S += phi(k) v^T on one row of a share, for one entry of the log.
  RUNNEL_DEVICE static void redo(Columns& row, float key, const Columns& value) {
    for (int j = 0; j < Columns::kWidth; ++j) row.at[j] = std::fma(key, value.at[j], row.at[j]);
  }

  // Copies the log to shared memory, and brings z, and S if it is in registers, up to date.
  template <typename Block, typename States>
  RUNNEL_DEVICE static void catch_up(Block& block, const Args& args, const HeadRun& at,
                                     States& held) {
    const int entry = args.dk + args.dv;
    const float* z_flushed = at.state + int64_t{args.dk} * args.dv;
    float* z = block.template shared<float>() + log_offset(args);
    float* log = z + args.dk;
    block.phase([&](int t) {
      const auto* from = reinterpret_cast<const Columns*>(z_flushed + args.dk);
      for (int i = t; i < at.logged * entry / Columns::kWidth; i += kThreads) {
        reinterpret_cast<Columns*>(log)[i] = from[i];
      }
      for (int i = t; i < args.dk; i += kThreads) z[i] = z_flushed[i];
    });
    block.each([&](int t) {
      for (int i = t; i < args.dk; i += kThreads) {
        for (int j = 0; j < at.logged; ++j) z[i] += log[j * entry + i];
      }
      if constexpr (kRows > 0) {
        const StateShare share = state_share<Columns>(t, kThreads, args.dv);
        for (int j = 0; j < at.logged; ++j) {
          const float* key = log + j * entry;
          const Columns value = *columns_at(log + j * entry + args.dk, args.dv, 0, share.column);
          for (int i = 0; i < kRows; ++i) {
            const int row = share.group + i * share.groups;
            if (row < args.dk) redo(held[t].row[i], key[row], value);
          }
        }
      }
    });
  }

  // Writes thread t's part of phi(k) and v to the log. At a flush, writes its part of z to the
  // state. If S is in registers, writes only data that later inputs do not overwrite: the last
  // flush, and log entries whose place no later input needs.
  template <typename Block>
  RUNNEL_DEVICE static void record(Block& block, const Args& args, const HeadRun& at, int input,
                                   int t) {
    const bool last = input + 1 == at.last_flush(kForm);
    const bool flushes = kRows > 0 ? last : at.entry(input) == kReplay - 1;
    float* z_flushed = at.state + int64_t{args.dk} * args.dv;
    const float* key = block.template shared<float>() + args.dk;
    float* z = block.template shared<float>() + log_offset(args);
    if (flushes) {
      for (int i = t; i < args.dk; i += kThreads) z_flushed[i] = z[i];
    } else if (at.entry(input) < kReplay - 1 && (kRows == 0 || input >= at.end - kReplay)) {
      const float* v = args.v + input * args.v_stride + int64_t{at.head} * args.dv;
      const int64_t entry = int64_t{at.entry(input)} * (args.dk + args.dv);
      float* logs[] = {z_flushed + args.dk + entry, z + args.dk + entry};
      for (int copy = 0; copy < (kRows > 0 ? 1 : 2); ++copy) {
        for (int i = t; i < args.dk; i += kThreads) logs[copy][i] = key[i];
        for (int j = t; j < args.dv; j += kThreads) logs[copy][args.dk + j] = v[j];
      }
    }
  }

  // Writes phi(q), take * phi(k) and the parts of phi(q) . z to shared memory, and computes z =
  // keep * z + take * phi(k) in place.
  template <typename Block>
  RUNNEL_DEVICE static void features(Block& block, const Args& args, const HeadRun& at, int input) {
    const float* q = args.q + input * args.q_stride + int64_t{at.head} * args.dk;
    const float* k = args.k + input * args.k_stride + int64_t{at.head} * args.dk;
    float* z = kReplays ? block.template shared<float>() + log_offset(args)
                        : at.state + int64_t{args.dk} * args.dv;
    float* query = block.template shared<float>();
    float* key = query + args.dk;
    float* dot = key + args.dk;
    block.phase([&](int t) {
      const auto gate = gate_at(args, at.head, input);
      for (int i = t; i < args.dk; i += kThreads) {
        query[i] = phi(args.map, q[i]);
        key[i] = gate.take * phi(args.map, k[i]);
        z[i] = gate.keep * z[i] + key[i];
        dot[i] = query[i] * z[i];
      }
      if constexpr (kReplays) record(block, args, at, input, t);
    });
  }

  // Computes one input: y = phi(q)^T S / (phi(q)^T z + eps). The sums over the rows of S are
  // computed first within groups, then over the groups; those of the normalizer in four parts. This
  // does not depend on the rest of the batch.
  template <typename Block, typename States>
  RUNNEL_DEVICE static void step(Block& block, const Args& args, const HeadRun& at, int input,
                                 States& held) {
    features(block, args, at, input);
    const float* v = args.v + input * args.v_stride + int64_t{at.head} * args.dv;
    const float* query = block.template shared<float>();
    const float* key = query + args.dk;
    const float* dot = key + args.dk;
    float* sums = block.template shared<float>() + 3 * int64_t{args.dk};  // [groups][dv]
    const int groups = state_share<Columns>(0, kThreads, args.dv).groups;
    block.phase([&](int t) {
      StateShare share = state_share<Columns>(t, kThreads, args.dv);
      const float keep = gate_at(args, at.head, input).keep;
      for (; share.group < share.groups && share.column < args.dv;
           share.column += kThreads * Columns::kWidth) {
        Columns value{};
        Columns sum{};
        for (int j = 0; j < Columns::kWidth; ++j) value.at[j] = v[share.column + j];
        if constexpr (kRows > 0) {
          for (int i = 0; i < kRows; ++i) {
            const int row = share.group + i * share.groups;
            if (row < args.dk) advance(held[t].row[i], keep, key[row], query[row], value, sum);
          }
        } else {
          for (int row = share.group; row < args.dk; row += share.groups) {
            in_memory(block, args, at, input, keep, row, share.column, value, sum);
          }
        }
        for (int j = 0; j < Columns::kWidth; ++j) {
          sums[share.group * args.dv + share.column + j] = sum.at[j];
        }
      }
    });
    float* out = args.out + input * args.out_stride + int64_t{at.head} * args.dv;
    block.phase([&](int t) {
      if (t >= args.dv) return;
      const float divisor = sum_by_four(dot, args.dk, 1) + args.eps;
      for (int j = t; j < args.dv; j += kThreads) {
        out[j] = sum_by_four(sums + j, groups, args.dv) / divisor;
      }
    });
  }

  // advance() on a share of a row of S that is in memory.
  template <typename Block>
  RUNNEL_DEVICE static void in_memory(Block& block, const Args& args, const HeadRun& at, int input,
                                      float keep, int row, int column, const Columns& value,
                                      Columns& sum) {
    const float* query = block.template shared<float>();
    const float* key = query + args.dk;
    Columns* there = columns_at(at.state, args.dv, row, column);
    Columns held = *there;
    if constexpr (kReplays) {
      float* log = block.template shared<float>() + log_offset(args) + args.dk;
      for (int j = 0; j < at.entry(input); ++j, log += args.dk + args.dv) {
        redo(held, log[row], *columns_at(log + args.dk, args.dv, 0, column));
      }
    }
    advance(held, keep, key[row], query[row], value, sum);
    if (!kReplays || at.entry(input) == kReplay - 1) *there = held;
  }

  // x[0] + x[stride] + ..., as four interleaved sums.
  RUNNEL_DEVICE static float sum_by_four(const float* x, int count, int stride) {
    float part[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int i = 0; i < count; i += 4) {
      for (int j = 0; j < 4; ++j) {
        if (i + j < count) part[j] += x[int64_t{i + j} * stride];
      }
    }
    return (part[0] + part[1]) + (part[2] + part[3]);
  }
};

// The variants, for heads of up to 32 x 32 (two rows of S for each thread), 64 x 64, 128 x 128, and
// of any size.
template <StateForm kForm>
struct Recur {
  using Small = RecurKernel<Quad, 2, 128, kForm>;
  using Medium = RecurKernel<Quad, 8, 128, kForm>;
  using Large = RecurKernel<Quad, 16, 256, kForm>;
  using Aligned = RecurKernel<Quad, 0, 128, kForm>;
  using Any = RecurKernel<Single, 0, 128, kForm>;
};
using RecurSmall = Recur<StateForm::kPlain>::Small;
using RecurMedium = Recur<StateForm::kPlain>::Medium;
using RecurLarge = Recur<StateForm::kPlain>::Large;
using RecurAligned = Recur<StateForm::kPlain>::Aligned;
using RecurAny = Recur<StateForm::kPlain>::Any;

}  // namespace runnel::cuda
