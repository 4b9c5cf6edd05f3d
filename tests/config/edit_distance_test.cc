#include "config/edit_distance.h"

#include <gtest/gtest.h>

#include <random>

namespace runnel {
namespace {

TEST(EditDistance, CountsInsertedDeletedChangedAndSwappedLetters) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("sessions", "sessions"), 0);
  EXPECT_EQ(edit_distance("session", "sessions"), 1);
  EXPECT_EQ(edit_distance("sesions", "sessions"), 1);
  EXPECT_EQ(edit_distance("sessiosn", "sessions"), 1);
  EXPECT_EQ(edit_distance("Sessions", "sessions"), 1);
  EXPECT_EQ(edit_distance("abcd", "wxyz"), 4);
}

TEST(EditDistance, IsSymmetricAndBoundedByTheLongerWord) {
  std::mt19937 random(3);
  const auto word = [&] {
    std::string text(random() % 9, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word();
    const std::string b = word();
    const int distance = edit_distance(a, b);
    EXPECT_EQ(distance, edit_distance(b, a)) << a << " " << b;
    EXPECT_LE(distance, static_cast<int>(std::max(a.size(), b.size())));
    EXPECT_EQ(distance == 0, a == b);
  }
}

TEST(Nearest, FindsOnlyNamesThatAreClose) {
  const std::vector<std::string> known = {"sessions", "samples", "mailbox"};
  EXPECT_EQ(nearest("session", known), "sessions");
  EXPECT_EQ(nearest("mialbox", known), "mailbox");
  EXPECT_EQ(nearest("colour", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest(std::string(100000, 's'), known), "");
}

}  // namespace
}  // namespace runnel
