#include "base/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace runnel {
namespace {

constexpr std::string_view kBad = "\xEF\xBF\xBD";  // U+FFFD

std::string decode(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  stream.add(bytes, text);
  stream.end(text);
  EXPECT_FALSE(stream.is_waiting());
  return text;
}

std::string bad(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kBad;
  return text;
}

TEST(Utf8, WholeTextStaysAsItIs) {
  for (const std::string_view text :
       {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "na\xC3\xAFve \xF0\x9F\x8C\x8A!"}) {
    EXPECT_EQ(decode(text), text);
    EXPECT_EQ(valid_utf8_prefix(text), text.size());
  }
  const std::string_view zero("a\0b", 3);
  EXPECT_EQ(decode(zero), zero);
}

// The table in section 3.9 of the Unicode standard, and similar sequences.
TEST(Utf8, EachMaximalPartOfACharacterBecomesOneReplacement) {
  EXPECT_EQ(decode("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), bad(8) + "A");
  EXPECT_EQ(decode("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), bad(8) + "A");
  EXPECT_EQ(decode("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), bad(5) + "A" + bad(2) + "B");
  EXPECT_EQ(decode("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), bad(4) + "A");
  EXPECT_EQ(decode("\xE1\x80\x41"), bad(1) + "A");
  EXPECT_EQ(decode("\xC3"), bad(1));
  EXPECT_EQ(decode("\xF0\x9F\x8C"), bad(1));
  EXPECT_EQ(decode("\xC3\xC3\xA9"), bad(1) + "\xC3\xA9");
}

TEST(Utf8, TheValidPrefixEndsBeforeABrokenOrCutCharacter) {
  EXPECT_EQ(valid_utf8_prefix("ab\xFFzz"), 2U);
  EXPECT_EQ(valid_utf8_prefix("ab\xC3"), 2U);
  EXPECT_EQ(valid_utf8_prefix("\xC3\xA9\xE0\x80\x80"), 2U);
  EXPECT_EQ(valid_utf8_prefix("\xF0\x9F\x8C"), 0U);
  EXPECT_EQ(valid_utf8_prefix("\xED\xA0\x80"), 0U);
}

TEST(Utf8, ACharacterIsEmittedWithItsLastByte) {
  Utf8Stream stream;
  std::string text;
  stream.add("x\xF0\x9F", text);
  EXPECT_EQ(text, "x");
  EXPECT_TRUE(stream.is_waiting());
  stream.add("\x8C", text);
  EXPECT_EQ(text, "x");
  stream.add("\x8Ay", text);
  EXPECT_EQ(text, "x\xF0\x9F\x8C\x8Ay");
  EXPECT_FALSE(stream.is_waiting());
  stream.end(text);
  EXPECT_EQ(text, "x\xF0\x9F\x8C\x8Ay");
}

// Bytes close to the edges of the ranges, cut at any place.
TEST(Utf8, CutsChangeNothingAndTheOutputIsValid) {
  std::mt19937 random(5);
  constexpr std::string_view kEdges =
      "aA\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xC3\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t i = random() % 24; i > 0; --i) bytes += kEdges[random() % kEdges.size()];
    const std::string whole = decode(bytes);
    EXPECT_EQ(valid_utf8_prefix(whole), whole.size());
    EXPECT_EQ(whole == bytes, valid_utf8_prefix(bytes) == bytes.size());
    Utf8Stream stream;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = 1 + random() % 3;
      stream.add(std::string_view(bytes).substr(at, length), text);
      EXPECT_EQ(valid_utf8_prefix(text), text.size());
      at += length;
    }
    stream.end(text);
    EXPECT_EQ(text, whole);
  }
}

}  // namespace
}  // namespace runnel
