// The recurrence of the gated linear family (Rule::kGated, backend.h): a block to 64 columns of one
// head of one row. Columns do not depend on each other, so each block computes the terms of its
// head by itself. S stays in registers while the row's inputs pass by, if they hold it.
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

// The most columns of S [dk][dv] that a block takes.
inline constexpr int kGatedColumns = 64;

// Inputs of which several heads of the recurrence may share one head.
struct HeadInputs {
  InputMatrix of;  // [inputs, heads * size]
  int heads, size;

  // The first input's numbers for head `head` of `all`. Null: none.
  RUNNEL_DEVICE const float* head(int head, int all, bool tiled) const {
    if (of.data == nullptr) return nullptr;
    return of.data + (tiled ? head % heads : head / (all / heads)) * size;
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

  // Columns of all blocks of a head but the last, which may have fewer.
  RUNNEL_DEVICE int columns() const { return dv < kGatedColumns ? dv : kGatedColumns; }
};

// kRows and S as SharedState has them. kCorrected: the delta rule.
template <typename Columns, int kRows, int kBlockThreads, bool kCorrected>
struct GatedKernel : private SharedState<Columns, kRows, kBlockThreads> {
  using Args = GatedArgs;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kResident = kRows >= 16 ? 1 : 4;
  static_assert(kGatedColumns <= kThreads);

  using Shared = SharedState<Columns, kRows, kBlockThreads>;
  using Shared::fits;

  static constexpr Launch launch(int64_t rows, const Args& args) {
    const int columns = args.columns();
    const int64_t groups = Shared::share_of(columns, 0).groups;
    const int64_t floats =
        (kCorrected ? 4 : 3) * int64_t{args.dk} + columns + (kCorrected ? 2 : 1) * groups * columns;
    return {.blocks = rows * args.heads * args.parts, .shared_bytes = floats * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const auto index = static_cast<int>(block.index() / args.parts);
    const RowPart row = part_of(args.rows, nullptr, index / args.heads, Part::kAll);
    if (row.begin >= row.end) return;
    block.require(row.begin >= 0 && row.end <= args.inputs,
                  "recur: a row's inputs are among those given");
    const Head head =
        head_of(args, index % args.heads, static_cast<int>(block.index() % args.parts), row.slot);
    typename Block::template Each<Held> held;
    if constexpr (kRows > 0) {
      block.each([&](int t) {
        const StateShare share = Shared::share_of(args.columns(), t);
        if (head.has(share)) Shared::load(share, head.place, held[t]);
      });
    }
    for (int input = row.begin; input < row.end; ++input) step(block, args, head, input, held);
    if constexpr (kRows > 0) {
      block.each([&](int t) {
        const StateShare share = Shared::share_of(args.columns(), t);
        if (head.has(share)) Shared::store(share, head.place, held[t]);
      });
    }
  }

 private:
  using typename Shared::Held;
  using Of = GatedRule<ScalarMath>;

  // The block's part of a head, with the first input's numbers.
  struct Head {
    int index;
    int first, columns;  // of v
    const float *q, *k, *v, *decay, *rate;
    StatePlace place;

    RUNNEL_DEVICE bool has(const StateShare& share) const {
      return share.group < share.groups && share.column < columns;
    }
  };
  // The terms of an input, in shared memory, with the sums over rows of S by groups of threads.
  struct Terms {
    float *q, *k, *w;        // [dk]
    float* v;                // [columns]
    float* sums;             // [groups][columns]
    float *a, *corrections;  // as k and sums; of kCorrected
  };

  RUNNEL_DEVICE static Head head_of(const Args& args, int head, int part, int32_t slot) {
    const int first = part * kGatedColumns;
    const int rest = args.dv - first;
    float* state = head_state(args, slot, int64_t{head} * args.dk * args.dv + first);
    return {.index = head,
            .first = first,
            .columns = rest < kGatedColumns ? rest : kGatedColumns,
            .q = args.q.head(head, args.heads, args.tiled_keys),
            .k = args.k.head(head, args.heads, args.tiled_keys),
            .v = args.v.head(head, args.heads, false) + first,
            .decay = args.decay.head(head, args.heads, false),
            .rate = args.rate.head(head, args.heads, false),
            .place = {state, args.dk, args.dv}};
  }
  template <typename Block>
  RUNNEL_DEVICE static Terms terms_of(Block& block, const Args& args) {
    float* at = block.template shared<float>();
    const int columns = args.columns();
    const int dk = args.dk;
    float* sums = at + 3 * dk + columns;
    float* a = sums + Shared::share_of(columns, 0).groups * columns;
    return {at, at + dk, at + 2 * dk, at + 3 * dk, sums, a, a + dk};
  }

  // A map of keys, which elu(x) + 1 may be, too.
  RUNNEL_DEVICE static float mapped(Activation map, float x) {
    return map == Activation::kElu ? phi(x) : activate(map, x);
  }
  RUNNEL_DEVICE static Of decay_at(const Args& args, const Head& head, int input, int i) {
    const int c = head.index * args.dk + i;
    const float x = head.decay == nullptr
                        ? 0.0F
                        : head.decay[input * args.decay.of.stride + (args.decay.size > 1 ? i : 0)];
    return Of::of(args.kind, x, args.decay_rate == nullptr ? 1.0F : args.decay_rate[c],
                  args.decay_bias == nullptr ? 0.0F : args.decay_bias[c], args.decay_least);
  }

  // Writes v, w, and q and k as they are before they are normalized, scaled and rotated. Returns
  // the factors of q and k.
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
      const float* q = head.q + input * args.q.of.stride;
      for (int i = t; i < args.dk; i += kThreads) {
        const Of made = decay_at(args, head, input, i);
        const float query = mapped(args.map, q[i]);
        const float key =
            head.k == nullptr ? made.k : mapped(args.map, head.k[input * args.k.of.stride + i]);
        terms.q[i] = query;
        terms.k[i] = key;
        terms.w[i] = made.w;
        queries[t] = squares ? std::fma(query, query, queries[t]) : queries[t] + query;
        keys[t] = squares ? std::fma(key, key, keys[t]) : keys[t] + key;
      }
      if (t < head.columns) terms.v[t] = head.v[input * args.v.of.stride + t];
    });
    Factors by = {args.scale, 1.0F};
    if (args.norm != KeyNorm::kNone) {
      by.q *= Of::factor(args.norm, block.sum(queries));
      const float of_keys = Of::factor(args.norm, block.sum(keys));
      if (head.k != nullptr) by.k = of_keys;
    } else if (args.turn.data != nullptr) {
      block.phase([](int) {});  // a thread reads what another one wrote
    }
    return by;
  }

  // Scales and rotates q and k. Returns the bonus's factor of v.
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
          bonus[t] = std::fma(query, args.bonus[head.index * args.dk + i] * key, bonus[t]);
        }
      };
      if (args.turn.data == nullptr) {
        for (int i = t; i < args.dk; i += kThreads) put(i, by.q * terms.q[i], by.k * terms.k[i]);
        return;
      }
      const int half = args.dk / 2;
      const float* turn = args.turn.row(input);
      for (int i = t; i < half; i += kThreads) {
        const Pair query = turned(terms.q, i, half, by.q, turn);
        const Pair key = head.k == nullptr ? Pair{terms.k[i], terms.k[i + half]}
                                           : turned(terms.k, i, half, by.k, turn);
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

  // One input. The sums over rows of S go by groups and then over the groups, whatever else is in
  // the batch.
  template <typename Block, typename EachHeld>
  RUNNEL_DEVICE static void step(Block& block, const Args& args, const Head& head, int input,
                                 EachHeld& held) {
    const Terms terms = terms_of(block, args);
    const Factors by = map_keys(block, args, head, input, terms);
    const float bonus = finish_keys(block, args, head, input, by, terms);
    if constexpr (kCorrected) {
      block.phase([&](int t) { correct(args, head, t, terms, held[t]); });
    }
    block.phase([&](int t) { advance(args, head, t, input, terms, held[t]); });
    block.phase([&](int t) {
      if (t >= head.columns) return;
      float y = Shared::total(terms.sums, args.columns(), t);
      if constexpr (!kCorrected) y = std::fma(bonus, terms.v[t], y);
      args.out[input * args.out_stride + head.index * args.dv + head.first + t] = y;
    });
  }

  // a^T S, by groups.
  RUNNEL_DEVICE static void correct(const Args& args, const Head& head, int t, const Terms& terms,
                                    Held& held) {
    const StateShare share = Shared::share_of(args.columns(), t);
    if (!head.has(share)) return;
    Columns sum{};
    Shared::each_row(share, head.place, held, [&](int row, const Columns& s) {
      for (int j = 0; j < Columns::kWidth; ++j) {
        sum.at[j] = std::fma(terms.a[row], s.at[j], sum.at[j]);
      }
    });
    Shared::put(sum, share, args.columns(), terms.corrections);
  }

  // What an input adds to S is k times this: v, or with the delta rule beta (v - a^T S).
  RUNNEL_DEVICE static Columns value_of(const Args& args, const Head& head, int input,
                                        const StateShare& share, const Terms& terms) {
    Columns value{};
    for (int j = 0; j < Columns::kWidth; ++j) value.at[j] = terms.v[share.column + j];
    if constexpr (kCorrected) {
      const float gate =
          head.rate == nullptr ? 1.0F : sigmoid(head.rate[input * args.rate.of.stride]);
      for (int j = 0; j < Columns::kWidth; ++j) {
        const float held = Shared::total(terms.corrections, args.columns(), share.column + j);
        value.at[j] = args.delta * gate * (value.at[j] - held);
      }
    }
    return value;
  }

  // S = diag(w) S + k value^T on a share of S, and S^T q, by groups. With a bonus S is read before.
  RUNNEL_DEVICE static void advance(const Args& args, const Head& head, int t, int input,
                                    const Terms& terms, Held& held) {
    const StateShare share = Shared::share_of(args.columns(), t);
    if (!head.has(share)) return;
    const Columns value = value_of(args, head, input, share, terms);
    Columns sum{};
    const auto update = [&](int row, Columns& s) {
      for (int j = 0; j < Columns::kWidth; ++j) {
        s.at[j] = std::fma(terms.k[row], value.at[j], terms.w[row] * s.at[j]);
      }
    };
    const auto read = [&](int row, const Columns& s) {
      for (int j = 0; j < Columns::kWidth; ++j) {
        sum.at[j] = std::fma(terms.q[row], s.at[j], sum.at[j]);
      }
    };
    if (!kCorrected && args.bonus != nullptr) {
      Shared::each_row(share, head.place, held, [&](int row, Columns& s) {
        read(row, s);
        update(row, s);
      });
    } else {
      Shared::each_row(share, head.place, held, [&](int row, Columns& s) {
        update(row, s);
        read(row, s);
      });
    }
    Shared::put(sum, share, args.columns(), terms.sums);
  }
};

// The variants, for 64 columns of a head: with up to 64 keys, up to 256, and any number.
template <bool kCorrected>
struct GatedRecur {
  using Medium = GatedKernel<Quad, 8, 128, kCorrected>;
  using Large = GatedKernel<Quad, 16, 256, kCorrected>;
  using Any = GatedKernel<Single, 0, 128, kCorrected>;
};

}  // namespace runnel::cuda
