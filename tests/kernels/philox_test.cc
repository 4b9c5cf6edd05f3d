#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace runnel {
namespace {

constexpr bool same(PhiloxCounter a, PhiloxCounter b) {
  return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] &&
         a.word[3] == b.word[3];
}

// The known answers of Random123 (tests/kat_vectors, philox4x32 with 10 rounds).
static_assert(same(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}),
                   {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
static_assert(same(philox4x32_10({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
                                 {{0xffffffff, 0xffffffff}}),
                   {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
static_assert(same(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                                 {{0xa4093822, 0x299f31d0}}),
                   {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));

TEST(Philox, KnownAnswersAtRunTime) {
  volatile uint32_t zero = 0;  // not folded by the compiler
  const PhiloxCounter words = philox4x32_10({{zero, zero, zero, zero}}, {{zero, zero}});
  EXPECT_TRUE(same(words, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
}

TEST(Philox, CounterAndKeyAreLaidOutAsDocumented) {
  const PhiloxCounter words =
      philox_words(0x299f31d0a4093822, 0x05a308d3243f6a88, 0x13198a2e, 0x03707344);
  EXPECT_TRUE(same(words, philox4x32_10({{0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}},
                                        {{0xa4093822, 0x299f31d0}})));
}

TEST(Philox, EveryCoordinateMatters) {
  std::set<uint32_t> seen;
  for (const PhiloxCounter words :
       {philox_words(1, 1, 1, 0), philox_words(2, 1, 1, 0),
        philox_words(uint64_t{1} << 32, 1, 1, 0), philox_words(1, 2, 1, 0),
        philox_words(1, int64_t{1} << 32, 1, 0), philox_words(1, 1, 2, 0),
        philox_words(1, 1, 1, 1)}) {
    seen.insert(words.word[0]);
  }
  EXPECT_EQ(seen.size(), 7U);
}

TEST(Philox, UniformIsInsideTheOpenIntervalAndExact) {
  EXPECT_EQ(philox_uniform(0), 0x1p-24F);
  EXPECT_EQ(philox_uniform(0xffffffff), 1.0F - 0x1p-24F);
  EXPECT_EQ(philox_uniform(0x80000000), 0.5F + 0x1p-24F);
  for (const uint32_t word : {0U, 0x12345678U, 0x7fffffffU, 0xfedcba98U, 0xffffffffU}) {
    EXPECT_EQ(static_cast<double>(philox_uniform(word)), ((word >> 9) + 0.5) / 8388608.0);
  }
}

TEST(Philox, UniformsAreUniform) {
  constexpr int kBins = 64;
  constexpr int kDraws = 64000;
  int counts[kBins] = {};
  for (int64_t position = 0; position < kDraws; ++position) {
    ++counts[static_cast<int>(philox_uniform(philox_words(7, position, 0, 0).word[1]) * kBins)];
  }
  double chi_square = 0;
  for (const int count : counts) {
    const double expected = static_cast<double>(kDraws) / kBins;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 120.0);  // 63 degrees of freedom: the probability beyond 121 is 1e-5
}

}  // namespace
}  // namespace runnel
