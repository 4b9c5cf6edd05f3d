// Operations that use earlier inputs: shift and convolution. A thread computes one column of a row
// for all inputs of the row in order, so `out` may be x.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.h"
#include "kernels/device.h"

namespace runnel::cuda {

struct ShiftArgs {
  Rows rows;
  int inputs;  // of all rows
  const float* x;
  int64_t x_stride;
  const float* mu;  // [mixes, width]
  int64_t mu_stride;
  int mixes, width;
  States states;
  float* out;
  int64_t out_stride;
};

struct ConvolveArgs {
  Rows rows;
  int inputs;
  const float* x;
  int64_t x_stride;
  const float* weight;  // [taps, width]
  int64_t weight_stride;
  const float* bias;  // null: none
  Activation activation;
  int taps, width;
  States states;
  float* out;
  int64_t out_stride;
};

inline ConvolveArgs convolve_args(Rows rows, const Convolved& one) {
  const auto& [x, convolution, states, out] = one;
  return {.rows = rows,
          .inputs = out.rows,
          .x = x.f32(),
          .x_stride = x.stride,
          .weight = convolution->weight.f32(),
          .weight_stride = convolution->weight.stride,
          .bias = convolution->bias.f32(),
          .activation = convolution->activation,
          .taps = convolution->taps(),
          .width = x.cols,
          .states = states,
          .out = out.f32(),
          .out_stride = out.stride};
}

// A block computes 128 columns of a row.
struct ByColumns {
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  template <typename Args>
  static constexpr Launch launch(const Args& args) {
    return {.blocks = args.rows.count * blocks_of(args.width), .shared_bytes = 0};
  }

 protected:
  // Calls column(part of the row, column, its address in the slot's state).
  template <typename Block, typename Args, typename Column>
  RUNNEL_DEVICE static void each_column(Block& block, const Args& args, const Column& column) {
    const int64_t blocks = blocks_of(args.width);
    const RowPart part =
        part_of(args.rows, nullptr, static_cast<int>(block.index() / blocks), Part::kAll);
    if (part.begin >= part.end) return;
    block.require(part.begin >= 0 && part.end <= args.inputs,
                  "a row's inputs are among those given");
    block.each([&](int t) {
      const int at = static_cast<int>(block.index() % blocks) * kThreads + t;
      if (at < args.width) column(part, at, head_state(args, part.slot, at));
    });
  }

 private:
  RUNNEL_DEVICE static constexpr int64_t blocks_of(int width) {
    return (width + kThreads - 1) / kThreads;
  }
};

struct ShiftKernel : ByColumns {
  using Args = ShiftArgs;

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    each_column(block, args, [&](const RowPart& part, int column, float* state) {
      float before = *state;
      for (int64_t input = part.begin; input < part.end; ++input) {
        const float now = args.x[input * args.x_stride + column];
        float* out = args.out + input * args.out_stride + column;
        for (int64_t mix = 0; mix < args.mixes; ++mix) {
          const float mu = args.mu[mix * args.mu_stride + column];
          out[mix * args.width] = std::fma(before - now, mu, now);
        }
        before = now;
      }
      *state = before;
    });
  }
};

// Adds the bias, then the inputs from the oldest on. This is the only order of sums.
struct ConvolveKernel : ByColumns {
  using Args = ConvolveArgs;

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    each_column(block, args, [&](const RowPart& part, int column, float* state) {
      const int held = args.taps - 1;
      const float* weight = args.weight + column;
      for (int64_t input = part.begin; input < part.end; ++input) {
        const float now = args.x[input * args.x_stride + column];
        float sum = args.bias == nullptr ? 0.0F : args.bias[column];
        for (int64_t tap = 0; tap < held; ++tap) {
          float* at = state + tap * args.width;
          sum = std::fma(weight[tap * args.weight_stride], *at, sum);
          *at = tap + 1 < held ? at[args.width] : now;
        }
        sum = std::fma(weight[held * args.weight_stride], now, sum);
        args.out[input * args.out_stride + column] = activate(args.activation, sum);
      }
    });
  }
};

}  // namespace runnel::cuda
