// out = LayerNorm(x + residual): a block to a row, two passes over what it holds in shared memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

struct NormArgs {
  const float* x;
  int64_t x_stride;
  const float* residual;  // null: none
  int64_t residual_stride;
  const float* scale;
  const float* shift;
  float eps;
  int width;
  float* out;  // may be x or the residual
  int64_t out_stride;
};

// An element of the output, given the row's mean and standard deviation.
RUNNEL_DEVICE constexpr float normalized(float x, float mean, float deviation, float scale,
                                         float shift) {
  return std::fma((x - mean) / deviation, scale, shift);
}

struct NormKernel {
  using Args = NormArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(int64_t rows, int width) {
    return {.blocks = rows, .shared_bytes = int64_t{width} * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t row = block.index();
    const float* x = args.x + row * args.x_stride;
    const float* residual =
        args.residual == nullptr ? nullptr : args.residual + row * args.residual_stride;
    float* out = args.out + row * args.out_stride;
    float* held = block.template shared<float>();
    const float width = static_cast<float>(args.width);

    typename Block::template Each<float> part;
    block.each([&](int t) {
      float sum = 0.0F;
      for (int i = t; i < args.width; i += kThreads) {
        held[i] = residual == nullptr ? x[i] : x[i] + residual[i];
        sum += held[i];
      }
      part[t] = sum;
    });
    const float mean = block.sum(part) / width;
    block.each([&](int t) {
      float sum = 0.0F;
      for (int i = t; i < args.width; i += kThreads) {
        const float deviation = held[i] - mean;
        sum = std::fma(deviation, deviation, sum);
      }
      part[t] = sum;
    });
    const float deviation = std::sqrt(block.sum(part) / width + args.eps);
    block.each([&](int t) {
      for (int i = t; i < args.width; i += kThreads) {
        out[i] = normalized(held[i], mean, deviation, args.scale[i], args.shift[i]);
      }
    });
  }
};

}  // namespace runnel::cuda
