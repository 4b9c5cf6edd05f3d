// Compares the categorical head with its own distribution.
#include "kernels/cpu/categorical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/philox.h"
#include "tests/kernels/fixture.h"

namespace runnel::cpu {
namespace {

const Kernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return amx_kernels();
  if (isa == Isa::kAvx512Bf16) return avx512bf16_kernels();
  if (isa == Isa::kAvx512) return avx512_kernels();
  if (isa == Isa::kAvx2) return avx2_kernels();
#endif
  (void)isa;
  return portable_kernels();
}

class CategoricalTest : public KernelTest {
 protected:
  Categorical row(const std::vector<float>& logits) {
    scratch_.assign(2 * logits.size(), NAN);
    return {kernels_of(GetParam().isa), logits.data(), static_cast<int>(logits.size()),
            scratch_.data()};
  }
  int32_t sample(const std::vector<float>& logits, const Sampling& sampling, double u) {
    return row(logits).sample(sampling, u);
  }

 private:
  std::vector<float> scratch_;
};

reference::Vector wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// A chi-square test of Philox draws. Bins with fewer than five expected draws are joined. The limit
// is five standard deviations above the statistic's mean. Filtered-out values must not be drawn.
void expect_distribution(const std::vector<int>& counts, const reference::Vector& p, int draws) {
  double statistic = 0;
  double freedom = -1;
  double rest_p = 0;
  double rest_count = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    freedom += 1;
  };
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      ASSERT_EQ(counts[i], 0) << "value " << i << " was filtered out";
    }
    rest_p += p[i];
    rest_count += counts[i];
    if (rest_p * draws < 5) continue;
    add(rest_count, rest_p * draws);
    rest_p = rest_count = 0;
  }
  EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom) + 5);
}

TEST_P(CategoricalTest, SamplesItsDistribution) {
  const std::vector<float> logits = random_floats(50, 3, 1.5F);
  std::vector<Sampling> samplings(8);
  samplings[1].temperature = 0.5F;
  samplings[2].temperature = 2.0F;
  samplings[3].top_k = 7;
  samplings[4].top_p = 0.6F;
  samplings[5].min_p = 0.2F;
  samplings[6] = {.temperature = 1.3F, .top_k = 20, .top_p = 0.9F, .min_p = 0.05F};
  samplings[7] = {.top_k = 10, .top_p = 0.5F};
  for (const Sampling& sampling : samplings) {
    constexpr int kDraws = 20000;
    std::vector<int> counts(logits.size());
    for (int64_t i = 0; i < kDraws; ++i) {
      ++counts[sample(logits, sampling, philox_uniform(philox_words(9, i, 0, 0).word[0]))];
    }
    expect_distribution(counts, reference::filtered_probabilities(wide(logits), sampling), kDraws);
  }
}

// Checks which values can be drawn: each kept value is drawn at the middle of its interval of u.
TEST_P(CategoricalTest, FiltersMatchTheReference) {
  std::mt19937 generator(1);
  for (int round = 0; round < 300; ++round) {
    const int values = 1 + static_cast<int>(generator() % 40);
    std::vector<float> logits = random_floats(values, generator(), 2.0F);
    if (round % 2 == 0) {
      for (float& x : logits) x = std::round(x);  // ties
    }
    const auto share = [&] { return static_cast<float>(generator() % 1000 + 1) / 1001.0F; };
    Sampling sampling;
    sampling.temperature = 0.3F + share();
    if (generator() % 2 == 0) sampling.top_k = static_cast<int>(generator() % 50);
    if (generator() % 2 == 0) sampling.top_p = share();
    if (generator() % 2 == 0) sampling.min_p = share();
    const reference::Vector p = reference::filtered_probabilities(wide(logits), sampling);
    double sum = 0;
    for (int value = 0; value < values; ++value) {
      if (p[value] > 1e-6) {
        EXPECT_EQ(sample(logits, sampling, sum + p[value] / 2), value) << "round " << round;
      }
      sum += p[value];
    }
  }
}

TEST_P(CategoricalTest, TiesGoToTheLowerValue) {
  const std::vector<float> logits = {1, 3, 0.0F, 3, -0.0F, 3, 1};
  for (const double u : {1e-9, 0.3, 0.6, 1 - 1e-9}) {
    EXPECT_EQ(sample(logits, {.top_k = 1}, u), 1);
    EXPECT_EQ(sample(logits, {.top_p = 1e-6F}, u), 1);
    EXPECT_EQ(sample(logits, {.top_k = 2}, u), u < 0.5 ? 1 : 3);
  }
  // The two zeros are equal, so they tie.
  EXPECT_EQ(sample({0.0F, -0.0F, 0.0F}, {.top_k = 2}, 1 - 1e-9), 1);
}

TEST_P(CategoricalTest, TopKOfZeroOrAboveTheVocabularyMeansAll) {
  const std::vector<float> logits = {0, 0, 0, 0};
  for (const int top_k : {0, 4, 5, 1 << 30}) {
    for (int value = 0; value < 4; ++value) {
      EXPECT_EQ(sample(logits, {.top_k = top_k}, value * 0.25 + 0.1), value);
    }
  }
}

TEST_P(CategoricalTest, ModeAndTopAreOrdered) {
  const std::vector<float> logits = {2, 5, 5, -1, 4};
  const Categorical at = row(logits);
  EXPECT_EQ(at.mode(), 1);
  TopLogProb top[kMaxTopLogProbs];
  ASSERT_EQ(at.top(top, 4), 4);
  const int expected[] = {1, 2, 4, 0};
  const reference::Vector log_p = reference::log_softmax(wide(logits));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(top[i].value, expected[i]);
    EXPECT_NEAR(top[i].log_prob, log_p[expected[i]], 1e-6);
    EXPECT_EQ(top[i].log_prob, at.log_prob(expected[i]));
  }
  EXPECT_EQ(at.top(top, kMaxTopLogProbs), 5);
}

TEST_P(CategoricalTest, TopOfManyMatchesASort) {
  const std::vector<float> logits = random_floats(5000, 5);
  std::vector<int> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  TopLogProb top[kMaxTopLogProbs];
  ASSERT_EQ(row(logits).top(top, kMaxTopLogProbs), kMaxTopLogProbs);
  for (int i = 0; i < kMaxTopLogProbs; ++i) EXPECT_EQ(top[i].value, order[i]);
}

TEST_P(CategoricalTest, LogProbsMatchAndDoNotDependOnTemperature) {
  for (const int values : {1, 2, 15, 16, 17, 100, 5000}) {
    const std::vector<float> logits = random_floats(values, static_cast<uint32_t>(values), 3.0F);
    Categorical at = row(logits);
    const reference::Vector log_p = reference::log_softmax(wide(logits));
    for (int value = 0; value < values; ++value) {
      ASSERT_NEAR(at.log_prob(value), log_p[value], 1e-6 * (1 + std::abs(log_p[value])));
    }
    const float before = at.log_prob(0);
    at.sample({.temperature = 0.2F}, 0.5);
    EXPECT_EQ(at.log_prob(0), before);
  }
}

TEST_P(CategoricalTest, ExtremeLogitsGiveFiniteResults) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float most = std::numeric_limits<float>::max();
  const std::vector<std::vector<float>> rows = {{1e30F, -1e30F, 0},
                                                {infinity, 0, -infinity},
                                                {-infinity, -infinity, -infinity},
                                                {NAN, NAN, NAN},
                                                {NAN, 3, 2},
                                                {most, -most, most},
                                                {infinity, infinity, NAN},
                                                {0, 0, 0}};
  for (const std::vector<float>& logits : rows) {
    for (const float temperature : {1e-3F, 1.0F, 100.0F, 1e-38F, 1e38F}) {
      for (const double u : {1e-7, 0.5, 1 - 1e-7}) {
        for (const Sampling& sampling :
             {Sampling{.temperature = temperature},
              Sampling{.temperature = temperature, .top_k = 2},
              Sampling{.temperature = temperature, .top_p = 0.5F, .min_p = 1.0F}}) {
          const int32_t value = sample(logits, sampling, u);
          ASSERT_GE(value, 0);
          ASSERT_LT(value, 3);
          if (temperature > 100) continue;  // all values are equally likely
          EXPECT_FALSE(std::isnan(logits[value]) && !std::isnan(logits[1]));
        }
      }
    }
    const Categorical at = row(logits);
    for (int value = 0; value < 3; ++value) EXPECT_TRUE(std::isfinite(at.log_prob(value)));
    EXPECT_GE(at.mode(), 0);
  }
}

TEST_P(CategoricalTest, TheLargestVocabulary) {
  std::vector<float> logits = random_floats(1 << 20, 2);
  logits[777777] = 30.0F;
  EXPECT_EQ(sample(logits, {.top_k = 50, .top_p = 0.9F, .min_p = 0.01F}, 0.3), 777777);
  EXPECT_EQ(row(logits).mode(), 777777);
  double sum = 0;
  const Categorical at = row(logits);
  for (int value = 0; value < 1 << 20; ++value) sum += std::exp(at.log_prob(value));
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Isas, CategoricalTest, testing::ValuesIn(all_isas()), setup_name);

}  // namespace
}  // namespace runnel::cpu
