#include "server/grpc/page_token.h"

#include <gtest/gtest.h>

#include <random>

#include "base/limits.h"

namespace runnel {
namespace {

TEST(PageToken, GivesBackItsSessionId) {
  for (const std::string& id :
       {std::string("a"), std::string("s-0123456789abcdef"), std::string(kMaxNameLength, 'z')}) {
    const auto read = read_page_token("m", make_page_token("m", id));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, id);
  }
  EXPECT_EQ(*read_page_token("m", ""), "");
}

TEST(PageToken, InvalidTokensAreRefused) {
  const std::string token = make_page_token("m", "session");
  EXPECT_FALSE(read_page_token("other", token).ok());
  EXPECT_FALSE(read_page_token("m", token + "00").ok());
  EXPECT_FALSE(read_page_token("m", token.substr(2)).ok());
  EXPECT_FALSE(read_page_token("m", std::string(100000, 'a')).ok());
  EXPECT_FALSE(read_page_token("m", "session").ok());
  for (size_t i = 0; i < token.size(); ++i) {
    for (const char c : {'0', 'f', 'F', 'g', '\0', '\xff'}) {
      std::string changed = token;
      changed[i] = c;
      const auto read = read_page_token("m", changed);
      EXPECT_EQ(read.ok(), changed == token) << changed;
      if (!read.ok()) {
        EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
      }
    }
  }
}

TEST(PageToken, RandomBytesAreRefused) {
  std::mt19937 random(5);
  for (int i = 0; i < 5000; ++i) {
    std::string token(random() % 40, ' ');
    for (char& c : token) c = static_cast<char>(random());
    EXPECT_EQ(read_page_token("m", token).ok(), token.empty());
  }
}

}  // namespace
}  // namespace runnel
