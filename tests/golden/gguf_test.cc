// GGUF files that llama.cpp's package gguf and its converter have written (make_gguf.py): blocks,
// and whole models.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "kernels/blocks.h"
#include "kernels/quantize_blocks.h"
#include "models/bundle/weight_file.h"
#include "tests/golden/golden_files.h"

namespace runnel {
namespace {

const std::string kFolder = std::string(kGoldenFolder) + "gguf/";

TEST(GoldenGguf, BlocksWidenAsInGguf) {
  const auto file = WeightFile::open(kFolder + "blocks.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  int types = 0;
  for (const auto& [name, stored] : file->tensors()) {
    if (!is_blocks(stored.type)) continue;
    SCOPED_TRACE(name);
    ++types;
    EXPECT_EQ(name, format_of(stored.type).name);
    const auto blocks = file->find(name, stored.shape);
    const auto expected = file->find(name + ".f32", stored.shape);
    ASSERT_TRUE(blocks.ok() && expected.ok());
    const std::vector<float> numbers = widened(*expected);
    EXPECT_EQ(widened(*blocks), numbers);
    std::vector<float> part(45);  // from the middle of a run to the middle of another
    widen(*blocks, 50, part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(numbers).subspan(50, part.size())));
  }
  EXPECT_EQ(types, 8);
}

TEST(GoldenGguf, NumbersBecomeTheBlocksOfGguf) {
  const auto file = WeightFile::open(kFolder + "blocks.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const StoredType type : {StoredType::kQ4_0, StoredType::kQ8_0}) {
    const std::string name = format_of(type).name;
    const StoredTensor& stored = file->tensors().find(name)->second;
    const auto blocks = file->find(name, stored.shape);
    const auto from = file->find(name + ".from", stored.shape);
    ASSERT_TRUE(blocks.ok() && from.ok());
    std::vector<std::byte> found(blocks->bytes.size());
    quantize_blocks(type, widened(*from), found.data());
    EXPECT_TRUE(std::ranges::equal(found, blocks->bytes)) << name;
  }
}

TEST(GoldenGguf, ScalesMustBeFinite) {
  const auto file = WeightFile::open(kFolder + "blocks.gguf");
  ASSERT_TRUE(file.ok());
  for (const auto& [name, stored] : file->tensors()) {
    if (!is_blocks(stored.type)) continue;
    SCOPED_TRACE(name);
    const auto tensor = file->find(name, stored.shape);
    ASSERT_TRUE(tensor.ok());
    const StoredFormat& format = format_of(stored.type);
    const bool has_minimum = stored.type == StoredType::kQ4K || stored.type == StoredType::kQ5K;
    const int64_t scale = stored.type == StoredType::kQ6K ? 208 : has_minimum ? 2 : 0;
    std::vector<std::byte> bytes(tensor->bytes.begin(), tensor->bytes.end());
    const Tensor copy = {stored.type, stored.shape, bytes};
    EXPECT_EQ(first_not_finite(copy), copy.elements());
    // The scale of MXFP4 is an exponent e, and its largest weight is 12 * 2^(e - 128).
    const bool is_exponent = stored.type == StoredType::kMxfp4;
    const auto place = static_cast<size_t>(2 * format.bytes + scale + (is_exponent ? 0 : 1));
    bytes[place] = is_exponent ? std::byte{252} : std::byte{0x7B};
    EXPECT_EQ(first_not_finite(copy), copy.elements());
    bytes[place] = is_exponent ? std::byte{253} : std::byte{0x7C};
    EXPECT_EQ(first_not_finite(copy), 2 * format.elements);
  }
}

TEST(GoldenGguf, ModelsAgreeWithTheirOwnClasses) {
  constexpr double kTolerance = 5e-5;
  for (const auto& [name, folder] : {std::pair{"rwkv7.gguf", "rwkv7_official"},
                                     std::pair{"mamba2.gguf", "mamba2_state_spaces"}}) {
    SCOPED_TRACE(name);
    const Bundle bundle = load(kFolder + name);
    const Golden golden = load_golden(folder, 1)[0];
    const Golden found = run_model(bundle, Isa::kPortable, golden.values);
    ASSERT_EQ(found.head.size(), golden.head.size());
    EXPECT_LT(worst_error(found.head, golden.head), kTolerance);
    EXPECT_LT(worst_error(found.log_prob, golden.log_prob), kTolerance);
  }
}

// Files of llama.cpp's own converter. It adds 1 to norms, takes exponentials, multiplies factors
// into weights and reorders heads, but changes no number of LFM2.
TEST(GoldenGguf, HybridsAgreeWithTheModelsThatTheyWereMadeOf) {
  constexpr double kTolerance = 1e-4;
  for (const std::string file :
       {"qwen35", "lfm2", "granitehybrid", "granitehybrid_experts", "falcon-h1", "nemotron_h",
        "lfm2moe", "qwen35moe", "nemotron_h_moe", "qwen3next", "qwen3next_joined"}) {
    SCOPED_TRACE(file);
    const std::string name = file.substr(0, file.find("_joined"));
    const Golden golden = load_golden("gguf/" + name, 1)[0];
    const Golden published = run_model(load(kFolder + name), Isa::kPortable, golden.values);
    const Golden found = run_model(load(kFolder + file + ".gguf"), Isa::kPortable, golden.values);
    ASSERT_EQ(found.head.size(), golden.head.size());
    EXPECT_LT(worst_error(published.head, golden.head), kTolerance);
    EXPECT_LT(worst_error(found.head, golden.head), kTolerance);
    EXPECT_LT(worst_error(found.log_prob, golden.log_prob), kTolerance);
    if (name.starts_with("lfm2")) {
      EXPECT_EQ(found.head, published.head);
    }
  }
}

}  // namespace
}  // namespace runnel
