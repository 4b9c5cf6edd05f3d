#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/blocks.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr int kVocabulary = 11;
constexpr int kPositions = 20;

struct Tables {
  Guarded values, positions;
  Tables(int value_width, int position_width)
      : values(kVocabulary, value_width, 1), positions(kPositions, position_width, 2) {
    values.fill(random_floats(int64_t{kVocabulary} * value_width, 1));
    positions.fill(random_floats(int64_t{kPositions} * position_width, 2));
  }
};

class Embed : public KernelTest {
 protected:
  // Three rows: one that consumes its pending value, a prompt, and a frozen one.
  std::vector<float> run(const Embedding& embedding, int width) {
    int32_t slot[] = {2, 0, -1};
    const int32_t first[] = {0, 1, 5, 6};
    int32_t values[] = {kNoValue, kNoValue, 3, 0, 10, 4};
    Control control[3];
    control[2].pending = 7;
    control[2].position = 19;
    control[0].pending = 5;
    control[0].position = 2;
    Guarded out(6, width, 3);
    backend().embed({slot, first, 3}, {values, DType::kI32, 1, 6, 6}, control, embedding,
                    out.view());
    out.expect_guards("embed");
    return out.values();
  }
  // The values and positions of the first five inputs of run().
  static constexpr int kValue[] = {7, 5, 3, 0, 10};
  static constexpr int kPosition[] = {19, 2, 3, 4, 5};
};

TEST_P(Embed, ConcatenatesTheTable) {
  Tables tables(5, 3);
  const std::vector<float> out = run(
      {tables.values.view(), tables.positions.view(), PositionKind::kTable, Combine::kConcat, 3},
      8);
  for (int i = 0; i < 5; ++i) {
    for (int c = 0; c < 8; ++c) {
      const float expected =
          c < 5 ? tables.values.at(kValue[i], c) : tables.positions.at(kPosition[i], c - 5);
      EXPECT_EQ(out[i * 8 + c], expected) << i << ", " << c;
    }
  }
}

TEST_P(Embed, AddsTheTable) {
  Tables tables(5, 5);
  const std::vector<float> out = run(
      {tables.values.view(), tables.positions.view(), PositionKind::kTable, Combine::kAdd, 5}, 5);
  for (int i = 0; i < 5; ++i) {
    for (int c = 0; c < 5; ++c) {
      EXPECT_EQ(out[i * 5 + c],
                tables.values.at(kValue[i], c) + tables.positions.at(kPosition[i], c));
    }
  }
}

TEST_P(Embed, ComputesSinusoids) {
  Tables tables(4, 1);
  for (const int width : {1, 7, 32}) {
    const std::vector<float> out =
        run({tables.values.view(), View{}, PositionKind::kSinusoidal, Combine::kConcat, width},
            4 + width);
    for (int i = 0; i < 5; ++i) {
      for (int c = 0; c < width; ++c) {
        const double expected = reference::sinusoid(kPosition[i], c, width);
        EXPECT_NEAR(out[i * (4 + width) + 4 + c], expected, 6e-8) << i << ", " << c;
      }
    }
  }
}

TEST_P(Embed, NoPositions) {
  Tables tables(6, 1);
  const std::vector<float> out =
      run({tables.values.view(), View{}, PositionKind::kNone, Combine::kAdd, 0}, 6);
  for (int i = 0; i < 5; ++i) {
    for (int c = 0; c < 6; ++c) EXPECT_EQ(out[i * 6 + c], tables.values.at(kValue[i], c));
  }
}

TEST_P(Embed, MultipliesValuesByTheirFactor) {
  Tables tables(5, 5);
  for (const Combine combine : {Combine::kAdd, Combine::kConcat}) {
    const int width = combine == Combine::kAdd ? 5 : 10;
    const std::vector<float> out = run(
        {tables.values.view(), tables.positions.view(), PositionKind::kTable, combine, 5, 12.0F},
        width);
    for (int i = 0; i < 5; ++i) {
      for (int c = 0; c < 5; ++c) {
        const float value = 12.0F * tables.values.at(kValue[i], c);
        const float position = tables.positions.at(kPosition[i], c);
        const bool add = combine == Combine::kAdd;
        EXPECT_EQ(out[i * width + c], add ? value + position : value) << i << ", " << c;
        if (add) continue;
        EXPECT_EQ(out[i * width + 5 + c], position) << i << ", " << c;
      }
    }
  }
}

// Random bytes that are valid blocks of this type, with finite scales.
std::vector<std::byte> blocks_of_a_table(StoredType type, int width) {
  std::vector<std::byte> blocks(static_cast<size_t>(bytes_of(type, int64_t{kVocabulary} * width)));
  std::mt19937 random(5);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 0xBB);
  return blocks;
}

class EmbedBlocks : public Embed {};

// Rows in blocks have the bits of the widened table.
TEST_P(EmbedBlocks, RowsInBlocksEqualTheWidenedTable) {
  constexpr int kWidth = 512;
  Tables tables(1, 3);
  int types = 0;
  for (size_t i = 0; i < kStoredFormats.size(); ++i) {
    const auto type = static_cast<StoredType>(i);
    if (!is_blocks(type) || !backend().embeds_blocks(type)) continue;
    SCOPED_TRACE(format_of(type).name);
    ++types;
    std::vector<std::byte> blocks = blocks_of_a_table(type, kWidth);
    ASSERT_EQ(first_bad_block(type, blocks.data(), kVocabulary * kWidth), kVocabulary * kWidth);
    std::vector<float> wide(kVocabulary * kWidth);
    widen_blocks(type, blocks.data(), 0, wide);
    Embedding embedding = {{wide.data(), DType::kF32, kVocabulary, kWidth, kWidth},
                           tables.positions.view(),
                           PositionKind::kTable,
                           Combine::kConcat,
                           3,
                           0.5F};
    const std::vector<float> expected = run(embedding, kWidth + 3);
    embedding.values.data = blocks.data();
    embedding.blocks = type;
    EXPECT_TRUE(same_bits(run(embedding, kWidth + 3), expected));
  }
  EXPECT_EQ(types, 7);
}

class EmbedBf16 : public Embed {};

// Widening a bf16 table is exact.
TEST_P(EmbedBf16, GivesTheNumbersOfTheTables) {
  Tables tables(5, 3);
  std::vector<uint16_t> values = bf16_of(tables.values.values());
  std::vector<uint16_t> positions = bf16_of(tables.positions.values());
  const std::vector<float> out = run({{values.data(), DType::kBF16, kVocabulary, 5, 5},
                                      {positions.data(), DType::kBF16, kPositions, 3, 3},
                                      PositionKind::kTable,
                                      Combine::kConcat,
                                      3},
                                     8);
  for (int i = 0; i < 5; ++i) {
    for (int c = 0; c < 8; ++c) {
      const float expected =
          c < 5 ? tables.values.at(kValue[i], c) : tables.positions.at(kPosition[i], c - 5);
      EXPECT_EQ(out[i * 8 + c], rounded_to_bf16(expected)) << i << ", " << c;
    }
  }
}

TEST_P(Embed, FarPositionsKeepTheirAngle) {
  Tables tables(1, 1);
  int32_t slot[] = {0};
  const int32_t first[] = {0, 1};
  int32_t values[] = {1};
  Control control;
  control.position = int64_t{1} << 40;
  Guarded out(1, 9);
  backend().embed({slot, first, 1}, {values, DType::kI32, 1, 1, 1}, &control,
                  {tables.values.view(), View{}, PositionKind::kSinusoidal, Combine::kConcat, 8},
                  out.view());
  for (int c = 0; c < 8; ++c) {
    EXPECT_NEAR(out.at(0, 1 + c), reference::sinusoid(control.position, c, 8), 1e-4);
  }
}

using EmbedDeathTest = KernelTest;

TEST_P(EmbedDeathTest, UnknownValuesAndPositionsStopTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Tables tables(2, 2);
  const Embedding embedding = {tables.values.view(), tables.positions.view(), PositionKind::kTable,
                               Combine::kConcat, 2};
  int32_t slot[] = {0};
  const int32_t first[] = {0, 1};
  Guarded out(1, 4);
  Control control;
  const auto embed = [&](int32_t value, int64_t position) {
    control.position = position;
    backend().embed({slot, first, 1}, {&value, DType::kI32, 1, 1, 1}, &control, embedding,
                    out.view());
  };
  EXPECT_DEATH(embed(kVocabulary, 0), "vocabulary");
  EXPECT_DEATH(embed(kNoValue, 0), "vocabulary");
  EXPECT_DEATH(embed(0, kPositions), "position");
}

INSTANTIATE_TEST_SUITE_P(Backends, Embed, testing::ValuesIn(all_backends()), setup_name);
INSTANTIATE_TEST_SUITE_P(Cpu, EmbedBlocks, testing::ValuesIn(all_setups()), setup_name);
INSTANTIATE_TEST_SUITE_P(Cpu, EmbedBf16, testing::ValuesIn(all_setups()), setup_name);
INSTANTIATE_TEST_SUITE_P(Backends, EmbedDeathTest, testing::ValuesIn(each_backend()), setup_name);

}  // namespace
}  // namespace runnel
