#include "models/bundle/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

// Copies of one of the project's bundles, in a new directory.
class Quantize : public testing::Test {
 protected:
  Bundle load(const std::string& path) {
    auto bundle = load_bundle(path);
    EXPECT_TRUE(bundle.ok()) << bundle.status().message();
    return std::move(*bundle);
  }

  std::vector<float> scores(const Bundle& bundle, Precision precision,
                            const std::vector<int32_t>& values) {
    const ModelLimits limits{.slots = 1, .rows = 1, .values = 16, .steps = 1};
    CpuModel cpu = make_cpu_model(bundle, {Isa::kPortable, 1}, limits, precision);
    begin_sequence(*cpu.model, 0, 1);
    return feed(*cpu.model, 0, values, 8, Want::kScores);
  }

  const TempDir dir_;
  const std::string from_ = "zoo/text-small", out_ = dir_.path() + "/out";
};

TEST_F(Quantize, QuantizesOnlyTheLargeMatrices) {
  const Bundle before = load(from_);
  const auto done = quantize(before, StoredType::kQ8_0, out_);
  ASSERT_TRUE(done.ok()) << done.status().message();
  const Bundle after = load(out_);
  EXPECT_EQ(after.spec.name, before.spec.name);
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  int64_t blocks = 0;
  for (const auto& [name, tensor] : after.tensors) {
    const Tensor& old = before.tensors.find(name)->second;
    EXPECT_EQ(tensor.shape, old.shape) << name;
    blocks += is_blocks(tensor.type) ? 1 : 0;
    if (is_blocks(tensor.type)) continue;
    EXPECT_EQ(widened(tensor), widened(old)) << name;
  }
  EXPECT_EQ(blocks, 4 * 6 + 1)
      << "of each layer q, k, v, out and two of the feed-forward; the head";
  EXPECT_EQ(done->matrices, blocks);
  EXPECT_EQ(done->others, std::ssize(after.tensors) - blocks);
  EXPECT_FALSE(is_blocks(after.tensors.find("value_embedding.weight")->second.type));
  EXPECT_LT(done->bytes_after, done->bytes_before);
  EXPECT_TRUE(std::filesystem::exists(out_ + "/README.md"));
  EXPECT_FALSE(std::filesystem::exists(out_ + "/model.safetensors"));
}

TEST_F(Quantize, IsServedNearTheOriginal) {
  const std::vector<int32_t> kText = {72, 101, 108, 108, 111, 32, 119, 111};
  const Bundle before = load(from_);
  const std::vector<float> exact = scores(before, Precision::kFp32, kText);
  // These are differences at single bytes. The mean is far smaller (docs/internals/numerics.md).
  for (const auto& [type, most] :
       {std::pair{StoredType::kQ8_0, 0.25F}, {StoredType::kQ4_0, 2.0F}}) {
    const std::string out = out_ + format_of(type).name;
    ASSERT_TRUE(quantize(before, type, out).ok());
    const Bundle after = load(out);
    ASSERT_TRUE(after.has_blocks());
    const std::vector<float> found = scores(after, Precision::kBlocks, kText);
    const std::vector<float> widened = scores(after, Precision::kFp32, kText);
    ASSERT_EQ(found.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(found[i], exact[i], most) << format_of(type).name << i;
      EXPECT_NEAR(found[i], widened[i], 2e-3F) << format_of(type).name << i;
    }
  }
}

// Families whose rows are multiples of 32, and the number of their matrices in blocks.
TEST_F(Quantize, EveryFamily) {
  const std::pair<const char*, int64_t> kModels[] = {
      {"rwkv7_fla", 15},   {"hybrid_falcon_h1", 28}, {"hybrid_granite", 20},
      {"hybrid_lfm2", 24}, {"hybrid_qwen3_5", 25},   {"hybrid_granite_experts", 17},
  };
  const std::vector<int32_t> kValues = {22, 11, 18, 28, 31, 32, 19, 11};
  for (const auto& [name, matrices] : kModels) {
    const Bundle before = load(std::string("tests/golden/") + name);
    const auto done = quantize(before, StoredType::kQ8_0, out_ + name);
    ASSERT_TRUE(done.ok()) << done.status().message();
    EXPECT_EQ(done->matrices, matrices) << name;
    const std::vector<float> found = scores(load(out_ + name), Precision::kBlocks, kValues);
    const std::vector<float> exact = scores(before, Precision::kFp32, kValues);
    ASSERT_EQ(found.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(found[i], exact[i], 0.1F) << name << i;
  }
}

// Qwen3.5 with a vision part has longer names, which a GGUF file may not be able to hold.
TEST_F(Quantize, LongNamesAreWrittenWithoutAPartThatMayBeMissing) {
  const std::string from = "tests/golden/hybrid_qwen3_5", nested = dir_.path() + "/nested";
  std::filesystem::create_directory(nested);
  std::filesystem::copy(from + "/config.json", nested);
  const std::string file = *read_file(from + "/model.safetensors", 1 << 24);
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), sizeof(bytes));
  std::string header = file.substr(sizeof(bytes), bytes);
  for (size_t at = 0; (at = header.find("\"model.", at)) != std::string::npos; at += 8) {
    header.insert(at + 7, "language_model.");
  }
  write_file(nested + "/model.safetensors",
             safetensors_file(header, file.substr(sizeof(bytes) + bytes)));
  const Bundle before = load(nested);
  ASSERT_TRUE(before.tensors.contains("model.language_model.embed_tokens.weight"));
  ASSERT_TRUE(quantize(before, StoredType::kQ8_0, out_).ok());
  const Bundle after = load(out_);
  EXPECT_TRUE(after.tensors.contains("model.embed_tokens.weight"));
  const std::vector<int32_t> kValues = {22, 11, 18, 28, 31};
  const std::vector<float> found = scores(after, Precision::kBlocks, kValues);
  ASSERT_TRUE(quantize(load(from), StoredType::kQ8_0, out_ + "2").ok());
  EXPECT_EQ(found, scores(load(out_ + "2"), Precision::kBlocks, kValues));
}

TEST_F(Quantize, RefusesUnsupportedBundlesAndExistingOutputs) {
  const Bundle bundle = load(from_);
  EXPECT_THAT(quantize(bundle, StoredType::kQ4_0, dir_.path()).status().message(),
              HasSubstr("exists; name a directory that does not exist"));
  EXPECT_THAT(quantize(bundle, StoredType::kQ4_0, dir_.path() + "/no/such").status().message(),
              HasSubstr("/no/such: cannot be made"));
  ASSERT_TRUE(quantize(bundle, StoredType::kQ4_0, out_).ok());
  EXPECT_THAT(quantize(load(out_), StoredType::kQ8_0, out_ + "2").status().message(),
              HasSubstr("its weights are in blocks already"));
  EXPECT_THAT(quantize(load("tests/golden/gguf/rwkv7.gguf"), StoredType::kQ8_0, out_ + "2")
                  .status()
                  .message(),
              HasSubstr("rwkv7.gguf: a GGUF file; quantize the model that it was made from"));
}

TEST_F(Quantize, RefusesNumbersBeyondTheScales) {
  Bundle bundle = load(from_);
  OwnedTensors owned;
  Tensor& head = bundle.tensors.find("predictor.weight")->second;
  std::vector<float> numbers = widened(head);
  numbers[40] = 1e9F;
  head = owned.add(head.shape, numbers);
  EXPECT_THAT(quantize(bundle, StoredType::kQ8_0, out_).status().message(),
              HasSubstr("tensor 'predictor.weight': a number is too large for the scales of Q8_0"));
  EXPECT_FALSE(std::filesystem::exists(out_)) << "a second attempt can use the same directory";
}

}  // namespace
}  // namespace runnel
