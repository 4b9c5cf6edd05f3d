#include "base/base64.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace runnel {
namespace {

std::string base64_of(std::string_view text) {
  return base64(std::vector<uint8_t>(text.begin(), text.end()));
}

TEST(Base64, MatchesTheStandard) {
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foo"), "Zm9v");
  EXPECT_EQ(base64_of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_of("\xff\xfe\xfb"), "//77");
}

TEST(Base64, ReadsWhatItWrites) {
  for (const std::string& text : {std::string(), std::string("f"), std::string("fo"),
                                  std::string("foo"), std::string("\xff\0\xfb\x01", 4)}) {
    EXPECT_EQ(from_base64(base64_of(text)), text);
  }
  for (const char* const wrong : {"Zg", "Zg=", "Zg===", "Z===", "====", "Zg= ", "Zm9v\n", "Z-9v"}) {
    EXPECT_EQ(from_base64(wrong), std::nullopt) << wrong;
  }
}

TEST(Base64, HasTheLengthOfBase64Length) {
  for (size_t bytes = 0; bytes < 50; ++bytes) {
    EXPECT_EQ(std::ssize(base64(std::vector<uint8_t>(bytes))), base64_length(bytes));
  }
}

}  // namespace
}  // namespace runnel
