// The work around a product of a library (product_library.h): packing its weights row by row,
// rounding its inputs to bf16, and computing the exact gelu, because the library's gelu is an
// approximation by tanh.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kRoundTogether = 8;  // elements of a thread: 16 bytes of bf16

// The row stride, in elements, of a weight and of inputs in bf16: a multiple of 16 bytes.
RUNNEL_DEVICE constexpr int plain_stride(int in, Precision precision) {
  const int run = precision == Precision::kBf16 ? kRoundTogether : 4;
  return (in + run - 1) / run * run;
}

// A weight [out, plain_stride(in)], row by row, zero padded. bf16 numbers are in pairs.
inline std::vector<uint32_t> plain_rows(HostTensor weight, Precision precision) {
  const bool pairs = precision == Precision::kBf16;
  const int64_t stride = plain_stride(weight.cols, precision) / (pairs ? 2 : 1);
  std::vector<uint32_t> rows(stride * weight.rows);
  for (int out = 0; out < weight.rows; ++out) {
    for (int in = 0; in < weight.cols; ++in) {
      const float w = weight.number(int64_t{out} * weight.cols + in);
      rows[out * stride + (pairs ? in / 2 : in)] |=
          pairs ? bf16_bits(w) << in % 2 * 16 : bit_cast<uint32_t>(w);
    }
  }
  return rows;
}

struct RoundArgs {
  const float* x;  // [rows, in]
  int64_t x_stride;
  int rows, in;
  uint32_t* pairs;  // bf16 [rows, plain_stride(in)], two per element, zeros after `in`
};

struct RoundKernel {
  using Args = RoundArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(const Args& args) {
    const int64_t runs =
        int64_t{args.rows} * (plain_stride(args.in, Precision::kBf16) / kRoundTogether);
    return {.blocks = (runs + kThreads - 1) / kThreads, .shared_bytes = 0};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int runs = plain_stride(args.in, Precision::kBf16) / kRoundTogether;  // of a row
    block.each([&](int t) {
      const int64_t index = block.index() * kThreads + t;
      const int64_t row = index / runs;
      if (row >= args.rows) return;
      const int from = static_cast<int>(index % runs) * kRoundTogether;
      const float* x = args.x + row * args.x_stride;
      const auto at = [&](int i) { return i < args.in ? x[i] : 0.0F; };
      Run out;
      for (int i = 0; i < kRoundTogether / 2; ++i) {
        out.pair[i] = block.pack(at(from + 2 * i), at(from + 2 * i + 1));
      }
      reinterpret_cast<Run*>(args.pairs)[index] = out;
    });
  }

 private:
  struct alignas(16) Run {
    uint32_t pair[kRoundTogether / 2];
  };
};

struct GeluArgs {
  float* y;  // [rows, out], changed in place
  int64_t y_stride;
  int rows, out;
};

struct GeluKernel {
  using Args = GeluArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(const Args& args) {
    return {.blocks = (int64_t{args.rows} * args.out + kThreads - 1) / kThreads, .shared_bytes = 0};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    block.each([&](int t) {
      const int64_t index = block.index() * kThreads + t;
      if (index >= int64_t{args.rows} * args.out) return;
      float& y = args.y[index / args.out * args.y_stride + index % args.out];
      y = gelu(y);
    });
  }
};

}  // namespace runnel::cuda
