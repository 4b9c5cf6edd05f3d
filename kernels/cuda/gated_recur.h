// The recurrence of the gated linear family, RWKV-5 and RWKV-6 (Rule::kGated). backend.h has its
// equations. A block takes 64 columns of one head of one row. Columns do not depend on each other,
// so each block computes the terms of its head by itself. If registers can hold the columns of S,
// they stay there for all inputs of the row.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/state_share.h"
#include "kernels/device.h"
#include "kernels/rules.h"

namespace runnel::cuda {

// Columns of S [dk][dv] that a block takes; the last block of a head may have fewer.
inline constexpr int kGatedColumns = 64;

// Inputs with their own number of heads: several heads of the recurrence may share a head of these.
struct HeadInputs {
  InputMatrix of;  // [inputs, heads * size]
  int heads, size;

  RUNNEL_DEVICE bool are_there() const { return of.data != nullptr; }
  // The first column for head `head` of `all`.
  RUNNEL_DEVICE int column(int head, int all, bool tiled) const {
    if (!are_there()) return 0;
    return (tiled ? head % heads : head / (all / heads)) * size;
  }
};

struct GatedArgs {
  Rows rows;
  int inputs;  // of all rows
  HeadInputs q, k, v, decay, rate;
  InputMatrix turn;
  int heads, dk, dv;
  int parts;  // blocks of a head
  DecayKind kind;
  KeyNorm norm;
  Activation map;
  bool tiled_keys;
  float scale, delta, decay_least;
  const float *decay_rate, *decay_bias, *bonus;  // [heads * dk]; null: none
  States states;
  float* out;
  int64_t out_stride;
};

// kRows as in SharedState. kCorrected: the delta rule.
template <typename Columns, int kRows, int kBlockThreads, bool kCorrected>
struct GatedKernel {
  using Args = GatedArgs;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kResident = kRows >= 16 ? 2 : 4;
  static_assert(kGatedColumns <= kThreads);

  RUNNEL_DEVICE static bool fits(int dk) { return Shared::fits(dk, kGatedColumns); }

  static constexpr Launch launch(int64_t rows, const Args& args) {
    const int64_t floats =
        (kCorrected ? 4 : 3) * int64_t{args.dk} + kGatedColumns + (kCorrected ? 2 : 1) * kSums;
    return {.blocks = rows * args.heads * args.parts, .shared_bytes = floats * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const Index index = index_of(args, block.index());
    const RowPart row = part_of(args.rows, nullptr, index.row, Part::kAll);
    if (row.begin >= row.end) return;
    block.require(row.begin >= 0 && row.end <= args.inputs,
                  "recur: a row's inputs are among those given");
    const Head head = head_of(args, index);
    typename Block::template Each<Held> held;
    if constexpr (kRows > 0) {
      block.each([&](int t) {
        const StateShare share = share_of(t);
        if (head.has(share)) Shared::load(share, head.place, held[t]);
      });
    }
    for (int input = row.begin; input < row.end; ++input) step(block, args, head, input, held);
    if constexpr (kRows > 0) {
      // The addresses are computed again. If they were kept, the compiler would spill registers.
      const StatePlace place = place_of(args, index_of(args, block.index()));
      block.each([&](int t) {
        const StateShare share = share_of(t);
        if (head.has(share)) Shared::store(share, place, held[t]);
      });
    }
  }

 private:
  using Shared = SharedState<Columns, kRows, kBlockThreads>;
  using Held = typename Shared::Held;
  using Of = GatedRule<ScalarMath>;

  // Threads are always laid out for 64 columns, so that the compiler knows the layout.
  RUNNEL_DEVICE static constexpr StateShare share_of(int t) {
    return state_share<Columns>(t, kThreads, kGatedColumns);
  }
  // The sums over the rows of S for each group of threads: [groups][kGatedColumns].
  static constexpr int kSums = kThreads / (kGatedColumns / Columns::kWidth) * kGatedColumns;

  // The block's part of a head.
  struct Head {
    int q, k, v, decay, rate;  // the first columns of the inputs
    int channel, out;          // the first of the constants and of the outputs
    int columns;               // of S, v and the outputs
    StatePlace place;

    RUNNEL_DEVICE bool has(const StateShare& share) const {
      return share.group < share.groups && share.column < columns;
    }
  };
  // The terms of an input, in shared memory, and the sums over the rows of S for each group of
  // threads.
  struct Terms {
    float *q, *k, *w;        // [dk]
    float* v;                // [columns]
    float* sums;             // [groups][kGatedColumns]
    float *a, *corrections;  // as k and sums; of kCorrected
  };

  struct Index {
    int row, head, part;
  };
  RUNNEL_DEVICE static Index index_of(const Args& args, int64_t block) {
    const auto head = static_cast<int>(block / args.parts);
    return {head / args.heads, head % args.heads, static_cast<int>(block % args.parts)};
  }
  RUNNEL_DEVICE static StatePlace place_of(const Args& args, const Index& index) {
    const int64_t at = int64_t{index.head} * args.dk * args.dv + index.part * kGatedColumns;
    return {head_state(args, args.rows.slot[index.row], at), args.dk, args.dv};
  }
  RUNNEL_DEVICE static Head head_of(const Args& args, const Index& index) {
    const int head = index.head;
    const int first = index.part * kGatedColumns;
    const int rest = args.dv - first;
    return {.q = args.q.column(head, args.heads, args.tiled_keys),
            .k = args.k.column(head, args.heads, args.tiled_keys),
            .v = args.v.column(head, args.heads, false) + first,
            .decay = args.decay.column(head, args.heads, false),
            .rate = args.rate.column(head, args.heads, false),
            .channel = head * args.dk,
            .out = head * args.dv + first,
            .columns = rest < kGatedColumns ? rest : kGatedColumns,
            .place = place_of(args, index)};
  }
  template <typename Block>
  RUNNEL_DEVICE static Terms terms_of(Block& block, const Args& args) {
    float* at = block.template shared<float>();
    const int dk = args.dk;
    float* v = at + 3 * dk;
    float* sums = v + kGatedColumns;
    float* a = sums + kSums;
    return {at, at + dk, at + 2 * dk, v, sums, a, a + dk};
  }

  // activate() does not support elu(x) + 1, which only GatedTerms::map uses.
  RUNNEL_DEVICE static float mapped(Activation map, float x) {
    return map == Activation::kElu ? phi(x) : activate(map, x);
  }
  RUNNEL_DEVICE static Of decay_at(const Args& args, const Head& head, int input, int i) {
    const int c = head.channel + i;
    const int column = head.decay + (args.decay.size > 1 ? i : 0);
    const float x = args.decay.are_there() ? args.decay.of.row(input)[column] : 0.0F;
    return Of::of(args.kind, x, args.decay_rate == nullptr ? 1.0F : args.decay_rate[c],
                  args.decay_bias == nullptr ? 0.0F : args.decay_bias[c], args.decay_least);
  }

  // Writes v, w and the mapped q and k. Returns the factors by which q and k are then scaled.
  struct Factors {
    float q, k;
  };
  template <typename Block>
  RUNNEL_DEVICE static Factors map_keys(Block& block, const Args& args, const Head& head, int input,
                                        const Terms& terms) {
    typename Block::template Each<float> queries;
    typename Block::template Each<float> keys;
    const bool squares = args.norm == KeyNorm::kL2;
    block.each([&](int t) {
      const float* q = args.q.of.row(input) + head.q;
      RUNNEL_ROLL
      for (int i = t; i < args.dk; i += kThreads) {
        const Of made = decay_at(args, head, input, i);
        const float query = mapped(args.map, q[i]);
        const float key =
            args.k.are_there() ? mapped(args.map, args.k.of.row(input)[head.k + i]) : made.k;
        terms.q[i] = query;
        terms.k[i] = key;
        terms.w[i] = made.w;
        queries[t] = squares ? std::fma(query, query, queries[t]) : queries[t] + query;
        keys[t] = squares ? std::fma(key, key, keys[t]) : keys[t] + key;
      }
      if (t < head.columns) terms.v[t] = args.v.of.row(input)[head.v + t];
    });
    Factors by = {args.scale, 1.0F};
    if (args.norm != KeyNorm::kNone) {
      by.q *= Of::factor(args.norm, block.sum(queries));
      const float of_keys = Of::factor(args.norm, block.sum(keys));
      if (args.k.are_there()) by.k = of_keys;
    } else if (args.turn.data != nullptr) {
      block.phase([](int) {});  // a thread rotates a number that another thread wrote
    }
    return by;
  }

  // Scales and rotates q and k. Returns the factor of v in the bonus.
  template <typename Block>
  RUNNEL_DEVICE static float finish_keys(Block& block, const Args& args, const Head& head,
                                         int input, const Factors& by, const Terms& terms) {
    typename Block::template Each<float> bonus;
    block.phase([&](int t) {
      const auto put = [&](int i, float query, float key) {
        terms.q[i] = query;
        terms.k[i] = key;
        if constexpr (kCorrected) {
          terms.a[i] = terms.w[i] * key;
        } else if (args.bonus != nullptr) {
          bonus[t] = std::fma(query, args.bonus[head.channel + i] * key, bonus[t]);
        }
      };
      if (args.turn.data == nullptr) {
        RUNNEL_ROLL
        for (int i = t; i < args.dk; i += kThreads) put(i, by.q * terms.q[i], by.k * terms.k[i]);
        return;
      }
      const int half = args.dk / 2;
      const float* turn = args.turn.row(input);
      RUNNEL_ROLL
      for (int i = t; i < half; i += kThreads) {
        const Pair query = turned(terms.q, i, half, by.q, turn);
        const Pair key = args.k.are_there() ? turned(terms.k, i, half, by.k, turn)
                                            : Pair{terms.k[i], terms.k[i + half]};
        put(i, query.low, key.low);
        put(i + half, query.high, key.high);
      }
    });
    return kCorrected || args.bonus == nullptr ? 0.0F : block.sum(bonus);
  }
  // Numbers i and i + half of x, scaled, and rotated by angle i.
  struct Pair {
    float low, high;
  };
  RUNNEL_DEVICE static Pair turned(const float* x, int i, int half, float by, const float* turn) {
    const float low = by * x[i];
    const float high = by * x[i + half];
    const float sine = turn[2 * i];
    const float cosine = turn[2 * i + 1];
    return {low * cosine - high * sine, high * cosine + low * sine};
  }

  // Computes one input. The sums over the rows of S are computed first within groups, then over the
  // groups. This does not depend on the rest of the batch.
  template <typename Block, typename EachHeld>
  RUNNEL_DEVICE static void step(Block& block, const Args& args, const Head& head, int input,
                                 EachHeld& held) {
    const Terms terms = terms_of(block, args);
    const Factors by = map_keys(block, args, head, input, terms);
    const float bonus = finish_keys(block, args, head, input, by, terms);
    if constexpr (kCorrected) {
      block.phase([&](int t) { correct(head, t, terms, held[t]); });
    }
    block.phase([&](int t) { advance(args, head, t, input, terms, held[t]); });
    block.phase([&](int t) {
      if (t >= head.columns) return;
      float y = Shared::total(terms.sums, kGatedColumns, t);
      if constexpr (!kCorrected) y = std::fma(bonus, terms.v[t], y);
      args.out[input * args.out_stride + head.out + t] = y;
    });
  }

  // Computes a^T S within groups.
  RUNNEL_DEVICE static void correct(const Head& head, int t, const Terms& terms, Held& held) {
    const StateShare share = share_of(t);
    if (!head.has(share)) return;
    Columns sum{};
    Shared::each_row(share, head.place, held, [&](int row, const Columns& s) {
      for (int j = 0; j < Columns::kWidth; ++j) {
        sum.at[j] = std::fma(terms.a[row], s.at[j], sum.at[j]);
      }
    });
    Shared::put(sum, share, kGatedColumns, terms.corrections);
  }

  // An input adds k value^T to S. The value is v, or beta (v - a^T S) with the delta rule.
  RUNNEL_DEVICE static Columns value_of(const Args& args, const Head& head, int input,
                                        const StateShare& share, const Terms& terms) {
    Columns value{};
    for (int j = 0; j < Columns::kWidth; ++j) value.at[j] = terms.v[share.column + j];
    if constexpr (kCorrected) {
      const float gate = args.rate.are_there() ? sigmoid(args.rate.of.row(input)[head.rate]) : 1.0F;
      const Columns kept = Shared::totals(terms.corrections, kGatedColumns, share);
      for (int j = 0; j < Columns::kWidth; ++j) {
        value.at[j] = args.delta * gate * (value.at[j] - kept.at[j]);
      }
    }
    return value;
  }

  // Computes S = diag(w) S + k value^T on a share of S, and S^T q within groups. With a bonus, S^T
  // q uses S from before the update.
  RUNNEL_DEVICE static void advance(const Args& args, const Head& head, int t, int input,
                                    const Terms& terms, Held& held) {
    const StateShare share = share_of(t);
    if (!head.has(share)) return;
    const Columns value = value_of(args, head, input, share, terms);
    const bool before = !kCorrected && args.bonus != nullptr;
    Columns sum{};
    Shared::each_row(share, head.place, held, [&](int row, Columns& s) {
      for (int j = 0; j < Columns::kWidth; ++j) {
        const float next = std::fma(terms.k[row], value.at[j], terms.w[row] * s.at[j]);
        sum.at[j] = std::fma(terms.q[row], before ? s.at[j] : next, sum.at[j]);
        s.at[j] = next;
      }
    });
    Shared::put(sum, share, kGatedColumns, terms.sums);
  }
};

// The variants: for heads with dk up to 64, with dk up to 256, and with any dk.
template <bool kCorrected>
struct GatedRecur {
  using Medium = GatedKernel<Quad, 8, 128, kCorrected>;
  using Large = GatedKernel<Quad, 16, 256, kCorrected>;
  using Any = GatedKernel<Single, 0, 128, kCorrected>;
};

}  // namespace runnel::cuda
