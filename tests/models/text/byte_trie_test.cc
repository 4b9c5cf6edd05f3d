#include "models/text/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace runnel {
namespace {

TEST(ByteTrie, FindsTheLongestOfRandomStrings) {
  std::mt19937 random(5);
  const auto string_of = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>("\0a\xff"[random() % 3]);
    return text;
  };
  std::map<std::string, int32_t> strings;
  for (int32_t i = 0; i < 200; ++i) strings.emplace(string_of(1 + random() % 8), i);
  const ByteTrie trie({strings.begin(), strings.end()});
  for (int round = 0; round < 2000; ++round) {
    const std::string text = string_of(random() % 12);
    ByteTrie::Match longest;
    for (const auto& [string, value] : strings) {
      if (text.starts_with(string) && string.size() > longest.length) {
        longest = {string.size(), value};
      }
    }
    const ByteTrie::Match found = trie.longest(text);
    EXPECT_EQ(found.length, longest.length);
    EXPECT_EQ(found.value, longest.value);
  }
}

TEST(ByteTrie, WithoutStringsFindsNone) {
  EXPECT_TRUE(ByteTrie().empty());
  EXPECT_EQ(ByteTrie().longest("a").length, 0U);
}

TEST(ByteTrie, BytesHaveNoSign) {
  std::vector<std::pair<std::string, int32_t>> strings;
  for (int32_t byte = 0; byte < 256; ++byte) {
    if (byte != 'a') strings.emplace_back(std::string(1, static_cast<char>(byte)), byte);
  }
  const ByteTrie but_one(strings);
  strings.emplace_back("a", 'a');
  const ByteTrie all(strings);
  for (int32_t byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(all.longest(text).value, byte);
    EXPECT_EQ(but_one.longest(text).value, byte == 'a' ? -1 : byte);
  }
}

}  // namespace
}  // namespace runnel
