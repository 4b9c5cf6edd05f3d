// The launches of products: which tiles they take, and which products share a launch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cuda/block_product.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/matmul.h"

namespace runnel::cuda {

using MatmulGroup = Group<MatmulArgs>;

inline MatmulArgs matmul_args(const Product& product) {
  const auto& [x, weight, end, out, up] = product;
  return {.x = x.f32(),
          .x_stride = x.stride,
          .panels = weight->panels.data(),
          .bias = weight->bias.template as<float>(),
          .rows = x.rows,
          .in = weight->in,
          .out = weight->out,
          .blocks = weight->blocks,
          .end = {.activation = end.activation,
                  .times = end.times.f32(),
                  .plus = end.plus.f32(),
                  .times_stride = end.times.stride,
                  .plus_stride = end.plus.stride},
          .y = out.f32(),
          .y_stride = out.stride};
}

// Calls launch(kernel) with the kernel for products in bf16 of this many rows. Large tiles read
// less; small tiles keep more multiprocessors busy, if a kernel has not enough blocks.
template <typename Large, typename Medium, typename Small, typename IsEnough, typename Launch>
void launch_bf16(int rows, const IsEnough& is_enough, const Launch& launch) {
  if (rows > kTileM && is_enough(Large())) {
    launch(Large());
  } else if (rows > kTileM || (rows > kFewRows && is_enough(Medium()))) {
    launch(Medium());
  } else {
    launch(Small());
  }
}

// Calls launch(Kernel(), args) for one launch of all these products, which have the same precision
// and number of rows. All tiles of a precision have the same order of sums.
template <typename LaunchKernel>
void launch_together(Precision precision, std::span<const MatmulArgs> products,
                     const LaunchKernel& launch) {
  const int rows = products[0].rows;
  const auto group_for = [&]<typename Kernel>(Kernel) {
    MatmulGroup group;
    for (const MatmulArgs& one : products) group.add(one, Kernel::launch(one).blocks);
    return group;
  };
  const auto is_enough = [&](auto kernel) { return group_for(kernel).blocks >= kEnoughBlocks; };
  const auto as = [&]<typename Kernel>(Kernel kernel) {
    launch(Grouped<Kernel>(), group_for(kernel));
  };
  if (precision == Precision::kBf16) {
    launch_bf16<MatmulBf16<2, 8>, MatmulBf16<1, 4>, MatmulBf16<1, 1>>(rows, is_enough, as);
  } else if (precision == Precision::kSplit) {
    if (rows <= 256) {
      as(MatmulBf16<1, 1, WeightForm::kSplit>());
    } else {
      as(MatmulBf16<1, 4, WeightForm::kSplit>());
    }
  } else if (precision == Precision::kBlocks) {
    if (rows == 1) {
      as(BlockProduct<1, 1>());
    } else if (rows <= kFewRows || !is_enough(BlockProduct<8, 4>())) {
      as(BlockProduct<8, 1>());
    } else {
      as(BlockProduct<8, 4>());
    }
  } else if (rows == 1) {
    as(MatmulFp32<1>());
  } else {
    as(MatmulFp32<8>());
  }
}

// Calls launch(Kernel(), args) for the launches of a product with two weights: one launch in bf16,
// and otherwise one for each weight.
template <typename LaunchKernel>
void launch_glu(const Product& product, const LaunchKernel& launch) {
  const auto& [x, weight, end, out, up] = product;
  const MatmulArgs gate = matmul_args(product);
  if (weight->precision != Precision::kBf16 || up->precision != Precision::kBf16) {
    launch_together(weight->precision, {&gate, 1}, launch);
    const MatmulArgs times = matmul_args({x, up, {Activation::kNone, out}, out});
    launch_together(up->precision, {&times, 1}, launch);
    return;
  }
  const GluArgs args = {gate, up->panels.data(), up->bias.template as<float>()};
  const auto is_enough = [&]<typename Kernel>(Kernel) {
    return Kernel::launch(args).blocks >= kEnoughBlocks;
  };
  constexpr WeightForm kTwo = WeightForm::kTwo;
  launch_bf16<MatmulBf16<2, 8, kTwo>, MatmulBf16<1, 4, kTwo>, MatmulBf16<1, 2, kTwo>>(
      x.rows, is_enough, [&](auto kernel) { launch(kernel, args); });
}

// Calls launch(Kernel(), args) for the launches of products with the same number of rows: one for
// each precision, or several if a group has no room for all, and those of products with two
// weights.
template <typename LaunchKernel>
void launch_products(std::span<const Product> products, const LaunchKernel& launch) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kSplit, Precision::kBlocks}) {
    std::array<MatmulArgs, MatmulGroup::kMost> together;
    size_t count = 0;
    for (const Product& one : products) {
      check(one.x.rows == products[0].x.rows, "matmuls: all have the same number of rows");
      if (one.up != nullptr || one.weight->precision != precision) continue;
      together[count++] = matmul_args(one);
      if (count < together.size()) continue;
      launch_together(precision, together, launch);
      count = 0;
    }
    if (count > 0) launch_together(precision, std::span(together).first(count), launch);
  }
  for (const Product& one : products) {
    if (one.up != nullptr) launch_glu(one, launch);
  }
}

}  // namespace runnel::cuda
