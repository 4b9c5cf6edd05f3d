// Compares the mixture of logistics with the definition in training and with its own distribution.
#include "kernels/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/philox.h"
#include "tests/kernels/fixture.h"

namespace runnel::cpu {
namespace {

reference::Vector wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

void expect_scores(const std::vector<float>& row, const char* what) {
  const int components = static_cast<int>(row.size()) / 3;
  const Mixture mixture(row.data(), components);
  const reference::Vector log_p = reference::mixture_log_probs(wide(row), components);
  for (int value = 0; value < 256; ++value) {
    ASSERT_NEAR(mixture.log_prob(value), log_p[value], 1e-6 * (1 + std::abs(log_p[value])))
        << what << ", value " << value;
  }
}

TEST(Mixture, ScoresMatchOnRandomHeads) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    for (const int components : {1, 3, 10}) {
      std::vector<float> row = random_floats(3 * components, seed);
      for (int i = 0; i < components; ++i)
        row[2 * components + i] = row[2 * components + i] * 2 - 3;
      expect_scores(row, "random");
    }
  }
}

TEST(Mixture, ScoresMatchInEveryBranch) {
  // Each has one component: logit, mean, raw log-scale.
  expect_scores({0, 0, -2}, "masses of all inner bins");
  expect_scores({0, 0, -7}, "thin bins away from the mean");
  expect_scores({0, 0.3F, -12}, "the scale's floor");
  expect_scores({0, -3, -1}, "the mass below the first bin");
  expect_scores({0, 3, -1}, "the mass above the last bin");
  expect_scores({0, 0, 6}, "a scale so wide that every inner bin is thin");
  expect_scores({0, 40, -7}, "a mean so far that probabilities leave the range of doubles");
  expect_scores({0, -40, -7}, "a mean far on the other side");
  expect_scores({5, -5, 40, 0.1F, -7, -1}, "a far component beside a near one");
  expect_scores({-200, 0, 0.2F, -30, -4, -7}, "a component that weighs nothing where it matters");
}

TEST(Mixture, ProbabilitiesOfScoringAddUpToOne) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<float> row = random_floats(12, seed, 0.5F);
    for (int i = 8; i < 12; ++i) row[i] -= 2.5F;
    const Mixture mixture(row.data(), 4);
    double sum = 0;
    for (int value = 0; value < 256; ++value) sum += std::exp(mixture.log_prob(value));
    EXPECT_NEAR(sum, 1.0, 1e-2);  // thin bins use the density, not the mass
  }
}

TEST(Mixture, TopAndModeAgreeWithScores) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::vector<float> row = random_floats(30, seed, 1.5F);
    for (int i = 20; i < 30; ++i) row[i] -= 3.0F;
    const Mixture mixture(row.data(), 10);
    TopLogProb top[kMaxTopLogProbs];
    ASSERT_EQ(mixture.top(top, kMaxTopLogProbs), kMaxTopLogProbs);
    EXPECT_EQ(mixture.mode(), top[0].value);
    int better = 0;
    for (int value = 0; value < 256; ++value) better += mixture.log_prob(value) > top[19].log_prob;
    EXPECT_LE(better, 19);
    for (int i = 0; i < kMaxTopLogProbs; ++i) {
      EXPECT_EQ(top[i].log_prob, mixture.log_prob(top[i].value));
      if (i == 0) continue;
      EXPECT_TRUE(top[i].log_prob < top[i - 1].log_prob ||
                  (top[i].log_prob == top[i - 1].log_prob && top[i].value > top[i - 1].value));
    }
    const reference::Vector log_p = reference::mixture_log_probs(wide(row), 10);
    for (const double other : log_p) EXPECT_GE(log_p[mixture.mode()], other - 1e-6);
  }
}

TEST(Mixture, SamplesItsDistribution) {
  std::vector<float> row = {0.5F, -0.5F, 1.0F, -0.8F, 0.1F, 0.9F, -4.0F, -2.0F, -3.0F};
  for (const float temperature : {1.0F, 0.5F, 0.05F, 1.5F}) {
    const Mixture mixture(row.data(), 3);
    constexpr int kDraws = 40000;
    std::vector<int> counts(256);
    for (int64_t i = 0; i < kDraws; ++i) {
      const PhiloxCounter words = philox_words(3, i, 1, 0);
      ++counts[mixture.sample(temperature,
                              {philox_uniform(words.word[0]), philox_uniform(words.word[1])})];
    }
    const reference::Vector p =
        reference::mixture_sampling_probabilities(wide(row), 3, temperature);
    double statistic = 0;
    double bins = 0;
    double rest_p = 0;
    double rest_count = 0;
    for (int value = 0; value < 256; ++value) {
      rest_p += p[value];
      rest_count += counts[value];
      if (rest_p * kDraws < 5) continue;
      statistic += std::pow(rest_count - rest_p * kDraws, 2) / (rest_p * kDraws);
      bins += 1;
      rest_p = rest_count = 0;
    }
    EXPECT_LT(statistic, bins + 5 * std::sqrt(2 * bins)) << "temperature " << temperature;
  }
}

TEST(Mixture, FollowsTheReferenceForEveryPairOfUniforms) {
  const Head kind = {HeadKind::kMixtureOfLogistics, 256, 10};
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> row = random_floats(30, seed);
    const Mixture mixture(row.data(), 10);
    for (int64_t i = 0; i < 50; ++i) {
      const PhiloxCounter words = philox_words(seed, i, 0, 0);
      const Uniforms u = {philox_uniform(words.word[0]), philox_uniform(words.word[1])};
      const Sampling sampling = {.temperature = i % 2 == 0 ? 1.0F : 0.3F};
      EXPECT_EQ(mixture.sample(sampling.temperature, u),
                reference::sample(kind, wide(row), sampling, u.choice, u.noise));
    }
  }
}

TEST(Mixture, RoundsHalfToEvenAndClamps) {
  // A tiny scale (1e-4) times a tiny temperature gives the mean itself.
  const auto at = [](float mean) {
    const std::vector<float> row = {0, mean, -60};
    return Mixture(row.data(), 1).sample(1e-3F, {0.5, 0.5});
  };
  EXPECT_EQ(at(-5.0F), 0);
  EXPECT_EQ(at(5.0F), 255);
  EXPECT_EQ(at(0.0F), 128);  // 127.5
  EXPECT_EQ(at(-1.0F), 0);
  EXPECT_EQ(at(1.0F), 255);
  EXPECT_EQ(at(0.2F), 153);  // 153.0
}

TEST(Mixture, ExtremeHeadsGiveFiniteResults) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float extremes[] = {0, 1e30F, -1e30F, infinity, -infinity, NAN, 88, -88, 1e-30F};
  for (const float logit : extremes) {
    for (const float mean : extremes) {
      for (const float raw : extremes) {
        const std::vector<float> row = {logit, 0, mean, 0, raw, -3};
        const Mixture mixture(row.data(), 2);
        for (const int value : {0, 1, 100, 254, 255}) {
          ASSERT_TRUE(std::isfinite(mixture.log_prob(value)))
              << logit << ", " << mean << ", " << raw << ": " << value;
        }
        for (const double u : {1e-7, 0.5, 1 - 1e-7}) {
          const int32_t value = mixture.sample(1.0F, {u, u});
          ASSERT_GE(value, 0);
          ASSERT_LE(value, 255);
        }
        const int32_t mode = mixture.mode();
        ASSERT_GE(mode, 0);
        ASSERT_LE(mode, 255);
      }
    }
  }
}

}  // namespace
}  // namespace runnel::cpu
