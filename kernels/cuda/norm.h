// The norms of backend.h. A block computes one row, or one group of a row's columns, in two passes
// over a copy in shared memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

struct NormArgs {
  NormKind kind;
  int groups;
  const float* x;
  int64_t x_stride;
  const float* residual;  // null: none
  int64_t residual_stride;
  const float* scale;  // null for kNone
  const float* shift;  // only for kLayer
  float eps;
  int width;          // of a group
  const float* gate;  // null: none
  int64_t gate_stride;
  const float* plus;  // null: none
  int64_t plus_stride;
  Activation activation;  // of the gate
  bool gate_before;
  float* out;  // may be x or the residual
  int64_t out_stride;
};

// An element of the output, from the row's mean and the inverse of its standard deviation. So there
// is one division for each row, and none for each element.
RUNNEL_DEVICE constexpr float normalized(float x, float mean, float inverse, float scale,
                                         float shift) {
  return std::fma((x - mean) * inverse, scale, shift);
}

struct NormKernel {
  using Args = NormArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;
  static constexpr int kAtOnce = 8;  // elements of a thread

  static constexpr Launch launch(int64_t rows, const Args& args) {
    return {.blocks = rows * args.groups, .shared_bytes = int64_t{args.width} * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t row = block.index() / args.groups;
    const int first = static_cast<int>(block.index() % args.groups) * args.width;
    const float* x = args.x + row * args.x_stride + first;
    const float* scale = args.scale == nullptr ? nullptr : args.scale + first;
    const float* shift = args.shift == nullptr ? nullptr : args.shift + first;
    const float* residual = at(args.residual, args.residual_stride, row, first);
    const float* gate = at(args.gate, args.gate_stride, row, first);
    const float* plus = at(args.plus, args.plus_stride, row, first);
    float* out = args.out + row * args.out_stride + first;
    float* held = block.template shared<float>();
    const float width = static_cast<float>(args.width);

    typename Block::template Each<float> part;
    block.each([&](int t) {
      float sum = 0.0F;
      const auto hold = [&](int i, float y) {
        held[i] = y;
        sum += y;
      };
      if (args.gate_before) {
        RUNNEL_ROLL
        for (int i = t; i < args.width; i += kThreads) {
          const float y = residual == nullptr ? x[i] : x[i] + residual[i];
          hold(i, y * activate(args.activation, gate[i]));
        }
      } else {
        for (int begin = t; begin < args.width; begin += kAtOnce * kThreads) {
          const Loaded given(x, begin, args.width);
          const Loaded rest(residual, begin, args.width);
          for_each_of(begin, args.width, [&](int i, int place) {
            hold(place, residual == nullptr ? given.at[i] : given.at[i] + rest.at[i]);
          });
        }
      }
      part[t] = sum;
    });
    const float mean = args.kind == NormKind::kLayer ? block.sum(part) / width : 0.0F;
    block.each([&](int t) {
      float sum = 0.0F;
      for (int i = t; i < args.width; i += kThreads) {
        const float deviation = held[i] - mean;
        sum = std::fma(deviation, deviation, sum);
      }
      part[t] = sum;
    });
    const float inverse = 1.0F / std::sqrt(block.sum(part) / width + args.eps);
    block.each([&](int t) {
      for (int begin = t; begin < args.width; begin += kAtOnce * kThreads) {
        const Loaded scales(scale, begin, args.width);
        const Loaded shifts(shift, begin, args.width);
        const Loaded more(plus, begin, args.width);
        for_each_of(begin, args.width, [&](int i, int place) {
          const float y = scale == nullptr
                              ? held[place]
                              : normalized(held[place], mean, inverse, scales.at[i], shifts.at[i]);
          out[place] = plus == nullptr ? y : y + more.at[i];
        });
      }
      if (gate == nullptr || args.gate_before) return;
      RUNNEL_ROLL
      for (int i = t; i < args.width; i += kThreads) out[i] *= activate(args.activation, gate[i]);
    });
  }

 private:
  // A thread's elements from `first` on, kThreads apart. Zeros after the row's end, or if `from` is
  // null. All loads start before anything is stored, so that the thread waits only once.
  struct Loaded {
    float at[kAtOnce];

    RUNNEL_DEVICE Loaded(const float* from, int first, int width) {
      RUNNEL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int place = first + i * kThreads;
        at[i] = from != nullptr && place < width ? from[place] : 0.0F;
      }
    }
  };
  // Calls use(i, place) for each existing element.
  template <typename Use>
  RUNNEL_DEVICE static void for_each_of(int first, int width, const Use& use) {
    RUNNEL_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kThreads < width) use(i, first + i * kThreads);
    }
  }

  RUNNEL_DEVICE static const float* at(const float* matrix, int64_t stride, int64_t row,
                                       int column) {
    return matrix == nullptr ? nullptr : matrix + row * stride + column;
  }
};

}  // namespace runnel::cuda
