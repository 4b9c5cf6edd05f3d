// Penalties against the formulas of Hugging Face's processors, to the bit, and the ring of recent
// values that they look at.
#include "kernels/penalties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr int kValues = 19;
constexpr Head kHead = {HeadKind::kCategorical, kValues, 0};
constexpr int kRoom = 8;
constexpr int kLastProbe = kValues - 1;  // no penalty is for values 0 and 18

// The logits after the penalties, one processor after the other, each over the whole vocabulary.
std::vector<float> processed(std::vector<float> logits, const Penalties& penalties,
                             const std::vector<int32_t>& known, size_t sampled) {
  const size_t seen = std::min<size_t>(known.size(), kRoom);
  std::map<int32_t, int> given;
  std::map<int32_t, int> output;
  for (size_t i = known.size() - seen; i < known.size(); ++i) {
    ++given[known[i]];
    if (i >= known.size() - sampled) ++output[known[i]];
  }
  for (const auto& [value, count] : given) {
    float& logit = logits[value];
    logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
  }
  for (const auto& [value, count] : output) {
    const float often = penalties.frequency * static_cast<float>(count);
    logits[value] = logits[value] - often;
  }
  for (const auto& [value, count] : output) logits[value] = logits[value] - penalties.presence;
  for (const auto& [value, bias] : penalties.logit_bias) logits[value] = logits[value] + bias;
  return logits;
}

class PenaltiesTest : public KernelTest {
 protected:
  // Samples from the logits after `known`, of which the last `sampled` are of this call.
  Sampled sample(const std::vector<float>& logits, const std::vector<int32_t>& known,
                 size_t sampled, const Penalties* penalties, const Sampling& sampling) {
    int32_t ring[kRoom] = {};
    const RecentRing recent = {ring, kRoom};
    for (size_t i = 0; i < known.size(); ++i) recent.note(static_cast<int64_t>(i), known[i]);
    Penalized penalized;
    penalized.from = static_cast<int64_t>(known.size() - sampled);
    if (penalties != nullptr) penalized.penalties = std::make_shared<const Penalties>(*penalties);
    Control control;
    control.seed = 5;
    control.remaining = 2;
    control.position = static_cast<int64_t>(known.size()) - 1;
    control.sampling = sampling;
    control.top_log_probs = 3;
    int32_t slot[] = {0};
    const int32_t first[] = {0, 1};
    const int32_t head_row[] = {0};
    const int32_t none[] = {kNoValue};
    Guarded head(1, kValues);
    head.fill(logits);
    Sampled out;
    top_.assign(kMaxTopLogProbs, {});
    backend().sample(
        {slot, first, 1},
        {head_row,
         none,
         {{reinterpret_cast<std::byte*>(ring), sizeof(ring), 0}, kRoom, none, &penalized}},
        kHead, head.view(), &control, {&out, top_.data()});
    EXPECT_EQ(ring[known.size() % kRoom], out.value + 1) << "the value is noted";
    return out;
  }
  float score(const std::vector<float>& logits, int32_t value) {
    Guarded head(1, kValues);
    head.fill(logits);
    float log_prob = 0;
    backend().score(kHead, head.view(), {&value, DType::kI32, 1, 1, 1},
                    {&log_prob, DType::kF32, 1, 1, 1});
    return log_prob;
  }
  // The logit of `value` becomes `expected`, and no other number: it is as likely as a value of
  // that logit before it and after it.
  void expect_logit(float logit, int32_t value, float expected, const Penalties& penalties,
                    const std::vector<int32_t>& known, size_t sampled) {
    std::vector<float> logits(kValues, -1e4F);
    logits[value] = logit;
    logits[kLastProbe] = expected;
    EXPECT_EQ(sample(logits, known, sampled, &penalties, {.greedy = true}).value, value);
    std::swap(logits[0], logits[kLastProbe]);
    EXPECT_EQ(sample(logits, known, sampled, &penalties, {.greedy = true}).value, 0);
  }

  std::vector<TopLogProb> top_;  // of the last sample()
};

TEST_P(PenaltiesTest, AreTheNumbersOfHuggingFace) {
  // 3.7, -2.9 and 0.1, computed in fp32 with Hugging Face's formulas.
  const std::vector<int32_t> known = {4, 4, 4};
  Penalties penalties;
  penalties.repetition = 1.3F;
  expect_logit(3.7F, 4, 0x1.6c4ec6p+1F, penalties, known, 3);
  expect_logit(-2.9F, 4, -0x1.e28f5cp+1F, penalties, known, 3);
  expect_logit(0.1F, 4, 0x1.3b13b2p-4F, penalties, known, 0);
  penalties.frequency = 0.7F;
  penalties.presence = 0.3F;
  expect_logit(3.7F, 4, 0x1.c8dc9cp-2F, penalties, known, 3);
  expect_logit(-2.9F, 4, -0x1.8ae148p+2F, penalties, known, 3);
  penalties.logit_bias = {{4, 1.1F}};
  expect_logit(3.7F, 4, 0x1.8bd0cp+0F, penalties, known, 3);
  expect_logit(-2.9F, 4, -0x1.447ae2p+2F, penalties, known, 3);
  expect_logit(0.1F, 4, -0x1.391b8ep+0F, penalties, known, 3);
}

TEST_P(PenaltiesTest, ChangeTheLogitsAsProcessorsDoAndNoLogProbability) {
  std::mt19937 generator(4);
  const auto below = [&](uint32_t most) { return static_cast<int32_t>(generator() % most); };
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> known(1 + below(14));
    for (int32_t& value : known) value = 1 + below(6);
    const auto sampled = static_cast<size_t>(below(static_cast<uint32_t>(known.size()) + 1));
    Penalties penalties;
    if (below(4) > 0) penalties.repetition = 0.5F + static_cast<float>(below(200)) / 97.0F;
    if (below(2) > 0) penalties.frequency = static_cast<float>(below(400) - 200) / 101.0F;
    if (below(2) > 0) penalties.presence = static_cast<float>(below(400) - 200) / 103.0F;
    if (below(2) > 0) penalties.logit_bias = {{3, 1.7F}, {9, -0.3F}};
    const std::vector<float> logits = random_floats(kValues, generator(), 3.0F);
    const std::vector<float> expected = processed(logits, penalties, known, sampled);
    for (int32_t value = 1; value < kLastProbe; ++value) {
      if (logits[value] == expected[value]) continue;
      expect_logit(logits[value], value, expected[value], penalties, known, sampled);
    }
    const Sampling sampling = {.temperature = 0.7F + static_cast<float>(below(2)) * 0.3F,
                               .top_k = below(8),
                               .top_p = 0.9F,
                               .greedy = below(5) == 0};
    const Sampled plain = sample(expected, known, sampled, nullptr, sampling);
    const Sampled penalized = sample(logits, known, sampled, &penalties, sampling);
    EXPECT_EQ(penalized.value, plain.value) << round;
    EXPECT_EQ(penalized.log_prob, score(logits, penalized.value)) << round;
    EXPECT_EQ(penalized.top_count, 3);
    const auto most = std::ranges::max_element(logits) - logits.begin();
    EXPECT_EQ(top_[0].value, most) << "the most likely values are the model's";
    EXPECT_EQ(top_[0].log_prob, score(logits, top_[0].value));
  }
}

TEST_P(PenaltiesTest, AStepNotesWhatItIsGivenAndWhatItSamples) {
  // Two values and one that becomes pending; one that samples; one that is frozen.
  std::vector<int32_t> ring(static_cast<size_t>(3 * kRoom));
  int32_t slot[] = {0, 1, -1};
  const int32_t first[] = {0, 2, 3, 4};
  const int32_t head_row[] = {-1, 0, 0};
  const int32_t pending[] = {7, kNoValue, kNoValue};
  const int32_t inputs[] = {5, 6, kNoValue, kNoValue};
  Control control[3];
  control[0].position = 7;
  control[1].position = 3;
  control[1].remaining = 1;
  const std::vector<Penalized> penalized(3);
  Guarded head(1, kValues);
  head.fill(random_floats(kValues, 1));
  std::vector<Sampled> out(3);
  std::vector<TopLogProb> top(static_cast<size_t>(3 * kMaxTopLogProbs));
  backend().sample({slot, first, 3},
                   {head_row,
                    pending,
                    {{reinterpret_cast<std::byte*>(ring.data()), kRoom * 4, 0},
                     kRoom,
                     inputs,
                     penalized.data()}},
                   kHead, head.view(), control, {out.data(), top.data()});
  std::vector<int32_t> expected(ring.size());
  expected[7] = 5 + 1;
  expected[0] = 6 + 1;  // at position 8
  expected[1] = 7 + 1;
  expected[kRoom + 4] = out[1].value + 1;
  EXPECT_EQ(ring, expected);
}

INSTANTIATE_TEST_SUITE_P(Cpu, PenaltiesTest, testing::ValuesIn(all_setups()), setup_name);

TEST(RecentRing, HasTheLastValuesInTheirOrder) {
  int32_t entries[3] = {};
  const RecentRing ring = {entries, 3};
  const auto values = [&](int64_t end) {
    std::vector<int32_t> found;
    ring.before(end, [&](int64_t, int32_t value) { found.push_back(value); });
    return found;
  };
  EXPECT_TRUE(values(0).empty() && values(100).empty());
  for (int32_t i = 0; i < 5; ++i) ring.note(i, i * 10);
  EXPECT_EQ(values(5), (std::vector<int32_t>{20, 30, 40}));
  const RecentRing none = {nullptr, 0};
  none.note(4, 1);
  none.before(5, [](int64_t, int32_t) { FAIL(); });
}

}  // namespace
}  // namespace runnel
