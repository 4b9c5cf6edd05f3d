#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <vector>

namespace runnel {
namespace {

using Values = std::vector<int32_t>;

TimePoint at(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

// A cache whose keys are made from values.
class PrefixCacheTest : public testing::Test {
 protected:
  PrefixKey key(const Values& values, const std::string& owner = "ada") {
    PrefixKey key = cache_.begin(owner);
    cache_.extend(key, values);
    return key;
  }
  // The length of the longest cached prefix, or -1 if no prefix is cached.
  int64_t found(const Values& values, const std::string& owner = "ada") {
    const auto key = cache_.find(cache_.begin(owner), values);
    return key ? key->length : -1;
  }

  PrefixCache cache_{3};
};

TEST_F(PrefixCacheTest, TheLongestPrefixThatLeavesAValueIsFound) {
  EXPECT_EQ(found({1, 2, 3}), -1);
  cache_.add(key({1, 2}), 5, at(1));
  cache_.add(key({1, 2, 3, 4}), 6, at(1));
  EXPECT_EQ(found({1}), -1);
  EXPECT_EQ(found({1, 2}), -1) << "no value is left to be read";
  EXPECT_EQ(found({1, 2, 3, 4}), 2);
  EXPECT_EQ(found({1, 2, 3, 4, 5, 6}), 4);
  EXPECT_EQ(found({1, 2, 9, 4, 5, 6}), 2);
  EXPECT_EQ(found({9, 2, 3, 4, 5, 6}), -1);
  EXPECT_EQ(cache_.use(key({1, 2, 3, 4}), at(1)), 6);
}

TEST_F(PrefixCacheTest, AKeyDoesNotDependOnHowItsValuesWereGrouped) {
  PrefixKey one = cache_.begin("ada");
  for (const int32_t value : {1, 2, 3}) cache_.extend(one, {&value, 1});
  EXPECT_EQ(one, key({1, 2, 3}));
  EXPECT_NE(one, key({0, 1, 2, 3}));
  EXPECT_NE(key({0}), key({0, 0}));
  EXPECT_NE(key({1, 2}), key({2, 1}));
}

TEST_F(PrefixCacheTest, ValuesBeforeThePromptCount) {
  cache_.add(key({7, 1}), 5, at(1));
  EXPECT_EQ(cache_.find(key({7}), Values{1, 2})->length, 2);
  EXPECT_FALSE(cache_.find(key({8}), Values{1, 2}).has_value());
}

TEST_F(PrefixCacheTest, OwnersDoNotSharePrefixes) {
  cache_.add(key({1, 2}, "ada"), 5, at(1));
  EXPECT_EQ(found({1, 2, 3}, "bob"), -1);
  EXPECT_EQ(found({1, 2, 3}, ""), -1);
  EXPECT_FALSE(cache_.use(key({1, 2}, "bob"), at(1)).has_value());
  cache_.add(key({1, 2}, "bob"), 6, at(1));
  EXPECT_EQ(cache_.use(key({1, 2}, "ada"), at(1)), 5);
  EXPECT_EQ(cache_.use(key({1, 2}, "bob"), at(1)), 6);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedPrefixIsEvictedFirst) {
  EXPECT_FALSE(cache_.surrender().has_value());
  for (const int slot : {4, 5, 6}) cache_.add(key({slot}), slot, at(1));
  EXPECT_TRUE(cache_.full());
  EXPECT_EQ(cache_.use(key({4}), at(1)), 4);
  EXPECT_EQ(cache_.surrender(), 5);
  EXPECT_EQ(found({5, 0}), -1);
  EXPECT_EQ(cache_.size(), 2);
  EXPECT_EQ(cache_.surrender(), 6);
  EXPECT_EQ(cache_.surrender(), 4);
  EXPECT_EQ(cache_.size(), 0);
}

TEST_F(PrefixCacheTest, StatesOfAnswersAreEvictedFirstAndFoundStatesLast) {
  cache_.add(key({4}), 4, at(1));
  cache_.use(key({4}), at(1));
  cache_.add(key({5}), 5, at(1));
  cache_.add(key({6}), 6, at(1), PrefixWorth::kAnswer);
  for (const int slot : {6, 5, 4}) EXPECT_EQ(cache_.surrender(), slot);
}

TEST_F(PrefixCacheTest, FoundStatesAreProtectedUpToHalfOfTheCache) {
  for (const int slot : {5, 6}) cache_.add(key({slot}), slot, at(1));
  for (const int slot : {5, 6}) cache_.use(key({slot}), at(1));
  cache_.add(key({4}), 4, at(2));
  EXPECT_EQ(cache_.surrender(), 5) << "two of three have been found: the oldest goes";
  EXPECT_EQ(cache_.surrender(), 4) << "one of two";
  EXPECT_EQ(cache_.surrender(), 6);
}

TEST_F(PrefixCacheTest, AnUnusedPrefixExpires) {
  cache_.add(key({1}), 4, at(1));
  cache_.add(key({2}), 5, at(2));
  EXPECT_FALSE(cache_.expire(at(1)).has_value());
  cache_.use(key({1}), at(7));
  EXPECT_EQ(cache_.expire(at(5)), 5);
  EXPECT_FALSE(cache_.expire(at(5)).has_value());
}

TEST(PrefixCache, ACacheOfNoBytesKeepsNothing) {
  PrefixCache cache(0);
  EXPECT_FALSE(cache.on());
  EXPECT_TRUE(cache.full());
  EXPECT_FALSE(cache.find(cache.begin(""), Values{1, 2}).has_value());
}

}  // namespace
}  // namespace runnel
