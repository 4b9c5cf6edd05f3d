// The recurrence with the rules of kernels/rules.h. A block computes one head of one row. S stays
// in registers for all inputs of the row, if it fits.
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

struct RuleArgs {
  Rows rows;
  int inputs;  // of all rows
  InputMatrix q, k, v, decay, rate, first, mix;
  int heads, key_heads, dk, dv;
  float eps;
  const float *k_k, *k_a, *r_k;           // [heads * dk]
  const float *dt_rate, *dt_bias, *skip;  // [heads]
  float dt_least, dt_most;
  States states;
  float* bonus;
  int64_t bonus_stride;
  float* out;
  int64_t out_stride;
};

// kRows as in SharedState. If it is 0 and there are too few threads, a thread computes several
// columns.
template <Rule kRule, typename Columns, int kRows, int kBlockThreads>
struct RuleKernel {
  using Args = RuleArgs;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kResident = kRows >= 16 ? 1 : 4;
  static constexpr bool kCorrected = kRule == Rule::kRwkv7;

  RUNNEL_DEVICE static bool fits(int dk, int dv) { return Shared::fits(dk, dv); }

  static constexpr Launch launch(int64_t rows, const Args& args) {
    const int64_t floats = 5 * int64_t{args.dk} + args.dv + 2 * sums_floats(args);
    return {.blocks = rows * args.heads, .shared_bytes = floats * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int head = static_cast<int>(block.index() % args.heads);
    const RowPart part =
        part_of(args.rows, nullptr, static_cast<int>(block.index() / args.heads), Part::kAll);
    if (part.begin >= part.end) return;
    block.require(part.begin >= 0 && part.end <= args.inputs,
                  "recur: a row's inputs are among those given");
    const StatePlace at = {head_state(args, part.slot, int64_t{head} * args.dk * args.dv), args.dk,
                           args.dv};
    typename Block::template Each<Held> held;
    if constexpr (kRows > 0) {
      block.each([&](int t) { Shared::load(Shared::share_of(args.dv, t), at, held[t]); });
    }
    for (int input = part.begin; input < part.end; ++input) {
      step(block, args, head, input, at, held);
    }
    if constexpr (kRows > 0) {
      block.each([&](int t) { Shared::store(Shared::share_of(args.dv, t), at, held[t]); });
    }
  }

 private:
  using Shared = SharedState<Columns, kRows, kBlockThreads>;
  using Held = typename Shared::Held;

  // The terms of an input, in shared memory, and the sums over the rows of S for each group of
  // threads.
  struct Terms {
    float *q, *k, *w, *a, *b;   // [dk]; kMamba2 has no w, a and b here
    float* v;                   // [dv]
    float *corrections, *sums;  // [groups][dv]
  };
  // The factors of an input, which all threads have.
  struct Factors {
    float w = 1.0F;           // of S
    float correction = 0.0F;  // of b (a^T S)
    float extra = 0.0F;       // of v in the bonus, of x in y
  };

  RUNNEL_DEVICE static int64_t sums_floats(const Args& args) {
    return int64_t{Shared::share_of(args.dv, 0).groups} * args.dv;
  }
  template <typename Block>
  RUNNEL_DEVICE static Terms terms_of(Block& block, const Args& args) {
    float* at = block.template shared<float>();
    const int dk = args.dk;
    float* sums = at + 5 * dk + args.dv;
    return {at,          at + dk,     at + 2 * dk, at + 3 * dk,
            at + 4 * dk, at + 5 * dk, sums,        sums + sums_floats(args)};
  }

  // Calls body(share) for a thread's columns, and then for the further columns that it computes.
  template <typename Body>
  RUNNEL_DEVICE static void each_share(const Args& args, int t, const Body& body) {
    StateShare share = Shared::share_of(args.dv, t);
    for (; share.group < share.groups && share.column < args.dv;
         share.column += kThreads * Columns::kWidth) {
      body(share);
    }
  }

  template <typename Block>
  RUNNEL_DEVICE static Factors rwkv7_terms(Block& block, const Args& args, int head, int input,
                                           const Terms& terms) {
    using Of = Rwkv7Rule<ScalarMath>;
    typename Block::template Each<float> square;
    typename Block::template Each<float> bonus;
    block.each([&](int t) {
      for (int i = t; i < args.dk; i += kThreads) {
        const int c = head * args.dk + i;
        const float r = args.q.row(input)[c];
        const auto made = Of::of({r, args.k.row(input)[c], args.decay.row(input)[c],
                                  args.rate.row(input)[c], args.k_k[c], args.k_a[c], args.r_k[c]});
        terms.q[i] = r;
        terms.k[i] = made.k;
        terms.w[i] = made.w;
        terms.a[i] = made.a;
        terms.b[i] = made.b;
        square[t] = std::fma(made.a, made.a, square[t]);
        bonus[t] += made.bonus;
      }
      for (int j = t; j < args.dv; j += kThreads) {
        const int c = head * args.dv + j;
        const float v = args.v.row(input)[c];
        terms.v[j] = args.mix.data == nullptr
                         ? v
                         : Of::value(v, args.first.row(input)[c], args.mix.row(input)[c]);
      }
    });
    const float inverse = Of::inverse_length(block.sum(square), args.eps);
    return {.correction = inverse * inverse, .extra = block.sum(bonus)};
  }

  template <typename Block>
  RUNNEL_DEVICE static Factors mamba2_terms(Block& block, const Args& args, int head, int input,
                                            const Terms& terms) {
    const auto made = Mamba2Rule<ScalarMath>::of(
        args.decay.row(input)[head],
        {args.dt_rate[head], args.dt_bias[head], args.dt_least, args.dt_most});
    const int first = head / (args.heads / args.key_heads) * args.dk;
    block.phase([&](int t) {
      for (int i = t; i < args.dk; i += kThreads) {
        terms.q[i] = args.q.row(input)[first + i];
        terms.k[i] = args.k.row(input)[first + i];
      }
      for (int j = t; j < args.dv; j += kThreads) {
        terms.v[j] = made.dt * args.v.row(input)[head * args.dv + j];
      }
    });
    return {.w = made.w, .extra = args.skip[head]};
  }

  // Computes one input. The sums over the rows of S are computed first within groups, then over the
  // groups. This does not depend on the rest of the batch.
  template <typename Block, typename States>
  RUNNEL_DEVICE static void step(Block& block, const Args& args, int head, int input,
                                 const StatePlace& at, States& held) {
    const Terms terms = terms_of(block, args);
    Factors factors;
    if constexpr (kRule == Rule::kRwkv7) {
      factors = rwkv7_terms(block, args, head, input, terms);
    } else {
      factors = mamba2_terms(block, args, head, input, terms);
    }
    if constexpr (kCorrected) correct(block, args, terms, at, held);
    block.phase([&](int t) {
      each_share(args, t, [&](const StateShare& share) {
        advance(args, share, terms, factors, at, held[t]);
      });
    });
    block.phase([&](int t) {
      for (int j = t; j < args.dv; j += kThreads) {
        const int c = head * args.dv + j;
        const float sum = Shared::total(terms.sums, args.dv, j);
        float& y = args.out[input * args.out_stride + c];
        if constexpr (kRule == Rule::kRwkv7) {
          y = sum;
          args.bonus[input * args.bonus_stride + c] = factors.extra * terms.v[j];
        } else {
          y = std::fma(factors.extra, args.v.row(input)[c], sum);
        }
      }
    });
  }

  // Computes a^T S within groups.
  template <typename Block, typename States>
  RUNNEL_DEVICE static void correct(Block& block, const Args& args, const Terms& terms,
                                    const StatePlace& at, States& held) {
    block.phase([&](int t) {
      each_share(args, t, [&](const StateShare& share) {
        Columns sum{};
        Shared::each_row(share, at, held[t], [&](int row, const Columns& s) {
          for (int j = 0; j < Columns::kWidth; ++j) {
            sum.at[j] = std::fma(terms.a[row], s.at[j], sum.at[j]);
          }
        });
        Shared::put(sum, share, args.dv, terms.corrections);
      });
    });
  }

  // Computes S = diag(w) S + b (a^T S) + k v^T on a share of S, and S^T q within groups.
  RUNNEL_DEVICE static void advance(const Args& args, const StateShare& share, const Terms& terms,
                                    const Factors& factors, const StatePlace& at, Held& held) {
    Columns value{};
    Columns correction{};
    Columns sum{};
    for (int j = 0; j < Columns::kWidth; ++j) {
      const int column = share.column + j;
      value.at[j] = terms.v[column];
      if constexpr (kCorrected) {
        correction.at[j] = factors.correction * Shared::total(terms.corrections, args.dv, column);
      }
    }
    Shared::each_row(share, at, held, [&](int row, Columns& s) {
      const float w = kCorrected ? terms.w[row] : factors.w;
      for (int j = 0; j < Columns::kWidth; ++j) {
        float next = w * s.at[j];
        if constexpr (kCorrected) next = std::fma(terms.b[row], correction.at[j], next);
        s.at[j] = std::fma(terms.k[row], value.at[j], next);
        sum.at[j] = std::fma(terms.q[row], s.at[j], sum.at[j]);
      }
    });
    Shared::put(sum, share, args.dv, terms.sums);
  }
};

// The variants, for heads of up to 64 x 64, for 128 x 128 and similar shapes, and for any size.
template <Rule kRule>
struct RuleRecur {
  using Medium = RuleKernel<kRule, Quad, 8, 128>;
  using Large = RuleKernel<kRule, Quad, 16, 256>;
  using Any = RuleKernel<kRule, Single, 0, 128>;
};

}  // namespace runnel::cuda
