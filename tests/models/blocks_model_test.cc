// Whole models whose weights are in blocks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

// A bundle with its large matrices in blocks, and a bundle with the same numbers in fp32.
struct Pair {
  Bundle blocks = in_blocks(random_bundle(small_blocks_spec(), 5)), numbers = blocks;
  OwnedTensors widened_tensors;
  int kept = 0;  // matrices in blocks

  Pair() {
    for (auto& [name, tensor] : numbers.tensors) {
      if (!is_blocks(tensor.type)) continue;
      tensor = widened_tensors.add(tensor.shape, widened(tensor));
      ++kept;
    }
  }
};

std::vector<float> scores(const Bundle& bundle, const CpuOptions& options, Precision precision,
                          int chunk = 8) {
  const ModelLimits limits{.slots = 2, .rows = 2, .values = 16, .steps = 1};
  CpuModel cpu = make_cpu_model(bundle, options, limits, precision);
  begin_sequence(*cpu.model, 0, 1);
  return feed(*cpu.model, 0, {2, 5, 7, 1, 0, 3, 9, 10, 4, 4, 6, 8}, chunk, Want::kScores);
}

double rms(const std::vector<float>& numbers) {
  double sum = 0;
  for (const float x : numbers) sum += double{x} * x;
  return std::sqrt(sum / static_cast<double>(numbers.size()));
}

double rms_of_difference(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return rms(a);
}

TEST(BlocksModel, AgreesWithTheWidenedNumbersOfItsBlocks) {
  const Pair pair;
  ASSERT_TRUE(pair.blocks.has_blocks());
  ASSERT_GT(pair.kept, 15);
  const std::vector<float> exact = scores(pair.numbers, {Isa::kPortable, 1}, Precision::kFp32);
  const std::vector<float> found = scores(pair.blocks, {Isa::kPortable, 1}, Precision::kBlocks);
  ASSERT_EQ(found.size(), exact.size());
  // In each run of 32 inputs, an input keeps 15 bits relative to the largest one.
  EXPECT_LT(rms_of_difference(found, exact), rms(exact) / 2048);
  // If the blocks are widened at load, the results are equal.
  EXPECT_EQ(scores(pair.blocks, {Isa::kPortable, 1}, Precision::kFp32), exact);
}

TEST(BlocksModel, ChunksAndThreadsDoNotChangeBits) {
  const Pair pair;
  const std::vector<float> one = scores(pair.blocks, {Isa::kPortable, 1}, Precision::kBlocks);
  EXPECT_EQ(scores(pair.blocks, {Isa::kPortable, 2}, Precision::kBlocks), one);
  EXPECT_EQ(scores(pair.blocks, {Isa::kPortable, 1}, Precision::kBlocks, 1), one);
}

TEST(BlocksModel, PrecisionBlocksNeedsWeightsInBlocks) {
  const Bundle plain = random_bundle(small_blocks_spec(), 5);
  EXPECT_FALSE(plain.has_blocks());
  const auto backend = make_cpu_backend({Isa::kPortable, 1});
  ASSERT_TRUE(backend.ok());
  const auto model = make_model(plain, **backend, {.slots = 1, .rows = 1, .values = 8, .steps = 1},
                                Precision::kBlocks);
  EXPECT_EQ(model.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(model.status().message(),
              testing::HasSubstr("precision blocks is for quantized GGUF files"));
}

}  // namespace
}  // namespace runnel
