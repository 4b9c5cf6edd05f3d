#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace runnel {
namespace {

TEST(Text, EscapesTerminalControlCharacters) {
  EXPECT_EQ(tame("plain\ttext\n"), "plain\ttext\n");
  EXPECT_EQ(tame("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(tame("\u00e9\u2588"), "\u00e9\u2588");
  EXPECT_EQ(tame("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(tame(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Text, CountsReadably) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-999), "-999");
  EXPECT_EQ(with_commas(INT64_MIN), "-9,223,372,036,854,775,808");
  EXPECT_EQ(byte_count(512), "512 B");
  EXPECT_EQ(byte_count(270336), "264 KiB");
  EXPECT_EQ(byte_count(3 << 19), "1.5 MiB");
  EXPECT_EQ(byte_count(INT64_MAX), "8 EiB");
  EXPECT_EQ(fixed(1.05341, 3), "1.053");
}

TEST(Text, PrintsTheShortestDigitsThatReadBackAsTheSameNumber) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(-1.5F), "-1.5");
  EXPECT_EQ(number_text(0.1F), "0.1");
  EXPECT_EQ(number_text(16), "16");
  EXPECT_EQ(number_text(100.00001F), "100.00001");
  EXPECT_EQ(number_text(3600000), "3600000");
  EXPECT_EQ(number_text(1e-8F), "1e-08");
  EXPECT_EQ(number_text(1e20F), "1e+20");
  EXPECT_EQ(number_text(INFINITY), "inf");
  EXPECT_EQ(number_text(NAN), "nan");
}

TEST(Text, ChoicesAreQuoted) {
  const std::vector<std::string_view> words = {"a", "b\n", "c"};
  EXPECT_EQ(quoted_choices(words), "'a', 'b\\x0a' or 'c'");
  EXPECT_EQ(quoted_choices(std::span(words).first(1)), "'a'");
}

}  // namespace
}  // namespace runnel
