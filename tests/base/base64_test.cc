#include "base/base64.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace runnel {
namespace {

std::string base64_of(std::string_view text) {
  return base64(std::vector<uint8_t>(text.begin(), text.end()));
}

TEST(Base64, IsThatOfTheStandard) {
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foo"), "Zm9v");
  EXPECT_EQ(base64_of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_of("\xff\xfe\xfb"), "//77");
}

TEST(Base64, IsAsLongAsItSays) {
  for (size_t bytes = 0; bytes < 50; ++bytes) {
    EXPECT_EQ(std::ssize(base64(std::vector<uint8_t>(bytes))), base64_length(bytes));
  }
}

}  // namespace
}  // namespace runnel
