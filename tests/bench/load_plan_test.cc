#include "bench/load_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace runnel {
namespace {

using testing::HasSubstr;

Lengths lengths(const std::string& text) { return *Lengths::parse(text, "--values"); }

CallMix traffic(const std::string& prompt, const std::string& values) {
  return {.prompt = lengths(prompt), .values = lengths(values)};
}

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

TEST(Lengths, AreDrawnFromTheGivenDistribution) {
  std::mt19937_64 random(2);
  std::set<int64_t> one;
  std::set<int64_t> range;
  std::set<int64_t> choice;
  double sum = 0;
  for (int i = 0; i < 20000; ++i) {
    one.insert(lengths("7").draw(random));
    range.insert(lengths("3-9").draw(random));
    choice.insert(lengths("0,5,700").draw(random));
    const int64_t length = lengths("exp:50").draw(random);
    EXPECT_GE(length, 1);
    sum += static_cast<double>(length);
  }
  EXPECT_EQ(one, (std::set<int64_t>{7}));
  EXPECT_EQ(range, (std::set<int64_t>{3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(choice, (std::set<int64_t>{0, 5, 700}));
  EXPECT_NEAR(sum / 20000, 50, 1.5);
}

TEST(Lengths, RefuseInvalidTexts) {
  for (const char* text : {"",      "a",       "-",      "-3",    "3-",      "9-3",
                           "1-2-3", "1,,2",    ",",      "1,",    "1.5",     "exp:",
                           "exp:0", "exp:1,2", "exp:-1", "exp:a", "1048577", "99999999999999999999",
                           " 1",    "1 ",      "1,2-3"}) {
    const auto parsed = Lengths::parse(text, "--prompt");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(parsed.status().message(), HasSubstr("--prompt: expected a length like 64"));
    EXPECT_THAT(parsed.status().message(), HasSubstr("not '" + std::string(text) + "'"));
  }
  EXPECT_FALSE(Lengths::parse(std::string(100000, '1'), "--prompt").ok());
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_FALSE(Lengths::parse(many, "--prompt").ok());
}

TEST(LoadPlan, CallsComeAtRandomAtTheRate) {
  LoadPlan plan(traffic("0", "10"), 200);
  double last = 0;
  double squares = 0;
  constexpr int kCalls = 20000;
  for (int i = 0; i < kCalls; ++i) {
    const double at = seconds_of(plan.next().at);
    EXPECT_GE(at, last);
    squares += (at - last) * (at - last);
    last = at;
  }
  EXPECT_NEAR(kCalls / last, 200, 6);
  // Exponential pauses have a mean square of twice the square of the mean.
  EXPECT_NEAR(squares / kCalls * 200 * 200, 2, 0.2);
}

TEST(LoadPlan, TheSameSeedGivesTheSamePlan) {
  CallMix some = traffic("1-100", "exp:30");
  some.cancel_share = 0.3;
  LoadPlan a(some, 10);
  LoadPlan b(some, 10);
  some.seed = 2;
  LoadPlan c(some, 10);
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    const PlannedCall x = a.next();
    const PlannedCall y = b.next();
    EXPECT_EQ(x.at, y.at);
    EXPECT_EQ(x.prompt, y.prompt);
    EXPECT_EQ(x.values, y.values);
    EXPECT_EQ(x.seed, y.seed);
    EXPECT_EQ(x.manner, y.manner);
    if (c.next().seed != x.seed) ++different;
  }
  EXPECT_EQ(different, 100);
}

TEST(LoadPlan, CallsFitTheLengthOfTheModel) {
  CallMix some = traffic("0-200", "0-200");
  some.max_length = 100;
  some.least_prompt = 1;
  LoadPlan plan(some, 0);
  for (int i = 0; i < 2000; ++i) {
    const PlannedCall call = plan.next();
    EXPECT_EQ(call.at, Duration(0));
    EXPECT_GE(call.prompt, 1);
    EXPECT_GE(call.values, 1);
    EXPECT_LE(call.prompt + call.values, 100);
    EXPECT_LT(call.break_after, call.values);
  }
}

TEST(LoadPlan, CancelsAndStallsTheGivenShareOfAllCalls) {
  CallMix some = traffic("0", "10");
  some.cancel_share = 0.25;
  some.stall_share = 0.1;
  LoadPlan plan(some, 1);
  int cancels = 0;
  int stalls = 0;
  for (int i = 0; i < 10000; ++i) {
    const Manner manner = plan.next().manner;
    if (manner == Manner::kCancels) ++cancels;
    if (manner == Manner::kStalls) ++stalls;
  }
  EXPECT_NEAR(cancels, 2500, 150);
  EXPECT_NEAR(stalls, 1000, 120);
}

TEST(RandomPrompt, HasOnlyValuesOfTheVocabulary) {
  const auto values = random_prompt(5000, 11, 3);
  EXPECT_EQ(values, random_prompt(5000, 11, 3));
  EXPECT_NE(values, random_prompt(5000, 11, 4));
  EXPECT_EQ(std::set<int32_t>(values.begin(), values.end()).size(), 11);
  EXPECT_EQ(*std::min_element(values.begin(), values.end()), 0);
  EXPECT_EQ(*std::max_element(values.begin(), values.end()), 10);
  EXPECT_TRUE(random_prompt(0, 11, 3).empty());
}

}  // namespace
}  // namespace runnel
