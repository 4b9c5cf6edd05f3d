// Whole models whose weights are in blocks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

Spec spec_of_blocks() {
  Spec spec = small_rwkv7_spec();
  auto& sizes = std::get<Rwkv7Spec>(spec.model);
  sizes.width = sizes.value_width = 64;
  sizes.heads = 4;
  sizes.ffn = 96;
  return spec;
}

// The numbers as Q8_0, without care for what is lost.
std::vector<std::byte> as_q8_0(const std::vector<float>& numbers) {
  std::vector<std::byte> blocks;
  for (size_t at = 0; at < numbers.size(); at += 32) {
    blocks.push_back(std::byte{0});
    blocks.push_back(std::byte{0x1C});  // 2^-8
    for (size_t i = at; i < at + 32; ++i) {
      const float whole = std::clamp(std::round(numbers[i] * 256.0F), -127.0F, 127.0F);
      blocks.push_back(static_cast<std::byte>(static_cast<int8_t>(whole)));
    }
  }
  return blocks;
}

// A bundle whose large matrices are in blocks, and the same numbers in fp32.
struct Pair {
  Bundle blocks = random_bundle(spec_of_blocks(), 5), numbers;
  std::vector<std::vector<std::byte>> kept;
  OwnedTensors widened_tensors;

  Pair() {
    numbers = blocks;
    for (auto& [name, tensor] : blocks.tensors) {
      const bool is_large = tensor.shape.size() == 2 && tensor.shape[1] % 32 == 0;
      if (!is_large || !name.ends_with(".weight")) continue;
      kept.push_back(as_q8_0(widened(tensor)));
      tensor = {StoredType::kQ8_0, tensor.shape, kept.back()};
      numbers.tensors[name] = widened_tensors.add(tensor.shape, widened(tensor));
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

TEST(BlocksModel, AgreesWithTheNumbersOfItsBlocks) {
  const Pair pair;
  ASSERT_TRUE(pair.blocks.has_blocks());
  ASSERT_GT(pair.kept.size(), 15U);
  const std::vector<float> exact = scores(pair.numbers, {Isa::kPortable, 1}, Precision::kFp32);
  const std::vector<float> found = scores(pair.blocks, {Isa::kPortable, 1}, Precision::kBlocks);
  ASSERT_EQ(found.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(found[i], exact[i], 2e-3) << i;
  // Widened at load, they are those numbers.
  EXPECT_EQ(scores(pair.blocks, {Isa::kPortable, 1}, Precision::kFp32), exact);
}

TEST(BlocksModel, ChunksAndThreadsDoNotChangeBits) {
  const Pair pair;
  const std::vector<float> one = scores(pair.blocks, {Isa::kPortable, 1}, Precision::kBlocks);
  EXPECT_EQ(scores(pair.blocks, {Isa::kPortable, 2}, Precision::kBlocks), one);
  EXPECT_EQ(scores(pair.blocks, {Isa::kPortable, 1}, Precision::kBlocks, 1), one);
}

TEST(BlocksModel, OnlyForWeightsInBlocks) {
  const Bundle plain = random_bundle(spec_of_blocks(), 5);
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
