#include "bench/tile_products.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cpu/machine.h"

namespace runnel {

float emulated_multiply_tiles(const void* data, int64_t bytes);  // in emulated_tile_products.cc

namespace {

constexpr uint16_t kOne = 0x3F80;  // 1 in bf16

// If all factors are one, the sum is the number of products.
TEST(TileProducts, TheKernelMakesAsManyProductsAsTheLimitCounts) {
  if (!__builtin_cpu_supports("avx512bw")) GTEST_SKIP() << "the emulation needs AVX-512";
  for (const int64_t steps : {1, 3, 256}) {
    const std::vector<uint16_t> ones(static_cast<size_t>(steps * kTileStepBytes / 2), kOne);
    const int64_t bytes = steps * kTileStepBytes;
    const auto products = static_cast<float>(steps * kTileStepProducts);
    EXPECT_EQ(emulated_multiply_tiles(ones.data(), bytes), products);
    if (cpu::may_use_tiles()) {
      EXPECT_EQ(multiply_tiles(ones.data(), bytes), products);
    }
  }
}

// Each step uses other weights.
TEST(TileProducts, ReadAllWeights) {
  if (!__builtin_cpu_supports("avx512bw")) GTEST_SKIP() << "the emulation needs AVX-512";
  std::vector<uint16_t> data(3 * kTileStepBytes / 2, kOne);
  for (size_t i = kTileStepBytes / 2; i < data.size(); ++i) data[i] = 0;
  EXPECT_EQ(emulated_multiply_tiles(data.data(), 3 * kTileStepBytes), kTileStepProducts);
}

}  // namespace
}  // namespace runnel
