// Mamba-1's recurrence (Rule::kMamba1). backend.h has its equations. A thread takes a channel,
// which is a column of a head's S [dk][dv], through the row's inputs. Neighbouring threads have
// neighbouring columns, so a warp reads a row of S at once.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/shift.h"
#include "kernels/device.h"

namespace runnel::cuda {

struct Mamba1Args {
  Rows rows;
  int inputs;  // of all rows
  InputMatrix q, k, v, decay, gate;
  int width;  // channels of all heads
  int key_heads, heads, dk, dv;
  const float* rate;         // [heads * dk, dv]
  const float *bias, *skip;  // [width]
  States states;
  float* out;
  int64_t out_stride;
};

// kRows > 0: rows of S and of the rates that a thread keeps in registers, at least dk. 0: any dk,
// with S in memory.
template <int kRows>
struct Mamba1Kernel : ByColumns {
  using Args = Mamba1Args;
  static constexpr int kResident = 4;

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    each_column(block, args, [&](const RowPart& part, int channel, float* state) {
      const int head = channel / args.dv;
      const int64_t before = int64_t{head} * args.dk * args.dv + channel % args.dv;
      Channel at = {.channel = channel,
                    .first_key = head / (args.heads / args.key_heads) * args.dk,
                    .state = state - channel + before,
                    .rate = args.rate + before,
                    .held = {}};
      if constexpr (kRows > 0) {
        RUNNEL_UNROLL
        for (int i = 0; i < kRows; ++i) {
          if (i < args.dk) at.held[i] = {at.state[i * args.dv], at.rate[i * args.dv]};
        }
      }
      for (int input = part.begin; input < part.end; ++input) step(args, input, at);
      if constexpr (kRows > 0) {
        RUNNEL_UNROLL
        for (int i = 0; i < kRows; ++i) {
          if (i < args.dk) at.state[i * args.dv] = at.held[i].state;
        }
      }
    });
  }

 private:
  struct Element {
    float state, rate;
  };
  // A thread's channel, with its column of S and of the rates.
  struct Channel {
    int channel;
    int first_key;  // of q and k
    float* state;
    const float* rate;
    Element held[kRows > 0 ? kRows : 1];
  };

  // Computes one input: S = exp(-rate dt) S + k dt v, out = (S^T q + skip v) silu(gate).
  RUNNEL_DEVICE static void step(const Args& args, int input, Channel& at) {
    const float x = args.v.row(input)[at.channel];
    const float dt = softplus(args.decay.row(input)[at.channel] + args.bias[at.channel]);
    const float value = dt * x;
    const float* k = args.k.row(input) + at.first_key;
    const float* q = args.q.row(input) + at.first_key;
    float y = args.skip[at.channel] * x;
    const auto advance = [&](int i, float& state, float rate) {
      state = std::fma(k[i], value, exp_nonpositive((0.0F - rate) * dt) * state);
      y = std::fma(q[i], state, y);
    };
    if constexpr (kRows > 0) {
      RUNNEL_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (i < args.dk) advance(i, at.held[i].state, at.held[i].rate);
      }
    } else {
      for (int64_t i = 0; i < args.dk; ++i) {
        advance(static_cast<int>(i), at.state[i * args.dv], at.rate[i * args.dv]);
      }
    }
    const float gate = activate(Activation::kSilu, args.gate.row(input)[at.channel]);
    args.out[input * args.out_stride + at.channel] = y * gate;
  }
};

// The variants: for channels with up to 16 numbers of state, and with any number.
struct Mamba1Recur {
  using Small = Mamba1Kernel<16>;
  using Any = Mamba1Kernel<0>;
};

}  // namespace runnel::cuda
