// Compares penalties with the formulas of Hugging Face's processors, bit by bit, and tests the ring
// of recent values that they read.
#include "kernels/penalties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr int kValues = 19;
constexpr int kRoom = 8;
constexpr int kLastProbe = kValues - 1;  // no penalty applies to values 0 and 18

// The logits after the penalties: one processor after the other, each over the whole vocabulary.
std::vector<float> processed(std::vector<float> logits, const Penalties& penalties,
                             const std::vector<int32_t>& known, size_t sampled,
                             size_t room = kRoom) {
  const size_t seen = std::min(known.size(), room);
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
  // Samples from the logits after the values `known`, the last `sampled` of which are from this
  // call. If `penalties` is null, the batch has none.
  Sampled sample(const std::vector<float>& logits, const std::vector<int32_t>& known,
                 size_t sampled, const Penalties* penalties, const Sampling& sampling,
                 int room = kRoom) {
    std::vector<int32_t> entries(room);
    const RecentRing ring = {entries.data(), room};
    for (size_t i = 0; i < known.size(); ++i) ring.note(static_cast<int64_t>(i), known[i]);
    Recent recent = {{reinterpret_cast<std::byte*>(entries.data()), int64_t{room} * 4, 0}, room};
    RowPenalties row;
    if (penalties != nullptr) {
      const auto held = std::make_shared<const Penalties>(*penalties);
      row = RowPenalties::of({held, static_cast<int64_t>(known.size() - sampled)}, 0);
      recent.penalties = &row;
      recent.biases = penalties->logit_bias.data();
    }
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
    const Head kind = {HeadKind::kCategorical, static_cast<int>(logits.size()), 0};
    Guarded head(1, kind.values);
    head.fill(logits);
    Sampled out;
    top_.assign(kMaxTopLogProbs, {});
    backend().sample({slot, first, 1}, {head_row, none, recent}, kind, head.view(), &control,
                     {&out, top_.data()});
    EXPECT_EQ(entries[known.size() % room], out.value + 1) << "the value is noted";
    EXPECT_TRUE(same_bits(head.values(), logits)) << "the head's output stays";
    return out;
  }
  float score(const std::vector<float>& logits, int32_t value) {
    const Head kind = {HeadKind::kCategorical, static_cast<int>(logits.size()), 0};
    Guarded head(1, kind.values);
    head.fill(logits);
    float log_prob = 0;
    backend().score(kind, head.view(), {&value, DType::kI32, 1, 1, 1},
                    {&log_prob, DType::kF32, 1, 1, 1});
    return log_prob;
  }
  // Checks that the logit of `value` becomes `expected`, exactly: it ties with a later and with an
  // earlier value that have this logit.
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

TEST_P(PenaltiesTest, ChangeTheChoiceLikeTheReferenceAndNoLogProbability) {
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

// There are more entries and biases than threads in a block, and some values have both.
TEST_P(PenaltiesTest, ALongRingAndAllBiases) {
  constexpr int kMany = 600;
  std::mt19937 generator(7);
  std::vector<int32_t> known(kMany + 77);
  for (int32_t& value : known) value = static_cast<int32_t>(generator() % 900);
  Penalties penalties = {.repetition = 1.7F, .frequency = 0.3F, .presence = -0.4F};
  for (int32_t i = 0; i < kMaxLogitBiases; ++i) {
    penalties.logit_bias.push_back({i * 5, static_cast<float>(i % 7) - 3.1F});
  }
  std::vector<float> logits = random_floats(2000, 3, 2.0F);
  logits[5] = std::numeric_limits<float>::quiet_NaN();
  for (const bool greedy : {false, true}) {
    const Sampling sampling = {.temperature = 0.8F, .top_p = 0.95F, .greedy = greedy};
    if (greedy) logits[known.back()] = 3e38F;
    std::vector<float> finite = logits;
    finite[5] = -1e30F;
    if (greedy) finite[known.back()] = 1e30F;
    for (const size_t sampled : {size_t{0}, size_t{300}}) {
      const std::vector<float> expected = processed(finite, penalties, known, sampled, kMany);
      const Sampled plain = sample(expected, known, sampled, nullptr, sampling, kMany);
      const Sampled penalized = sample(logits, known, sampled, &penalties, sampling, kMany);
      EXPECT_EQ(penalized.value, plain.value);
      EXPECT_EQ(penalized.log_prob, score(logits, penalized.value));
    }
  }
}

TEST_P(PenaltiesTest, AStepRecordsItsInputsAndSamples) {
  // One row has two inputs and a value that becomes pending, one samples, so that its input is not
  // recorded, one is frozen, and one has more inputs than the ring has room for.
  constexpr int kLong = 20;
  const int32_t first[] = {0, 2, 3, 4, 4 + kLong};
  const int32_t head_row[] = {-1, 0, 0, -1};
  const int32_t pending[] = {7, kNoValue, kNoValue, 9};
  std::vector<int32_t> inputs = {5, 6, 8, kNoValue};
  for (int i = 0; i < kLong; ++i) inputs.push_back(i % kValues);
  Guarded head(1, kValues);
  head.fill(random_floats(kValues, 1));
  const RowPenalties none[4] = {};
  for (const RowPenalties* penalties : {none, static_cast<const RowPenalties*>(nullptr)}) {
    std::vector<int32_t> ring(static_cast<size_t>(3 * kRoom));
    int32_t slot[] = {0, 1, -1, 2};
    Control control[3];
    control[0].position = 7;
    control[1].position = 3;
    control[1].remaining = 1;
    control[2].position = 5;
    std::vector<Sampled> out(4);
    std::vector<TopLogProb> top(static_cast<size_t>(4 * kMaxTopLogProbs));
    const States states = {reinterpret_cast<std::byte*>(ring.data()), kRoom * 4, 0};
    backend().sample(
        {slot, first, 4}, {head_row, pending, {states, kRoom, inputs.data(), penalties}},
        {HeadKind::kCategorical, kValues, 0}, head.view(), control, {out.data(), top.data()});
    std::vector<int32_t> expected(ring.size());
    expected[7] = 5 + 1;
    expected[0] = 6 + 1;  // at position 8
    expected[1] = 7 + 1;
    expected[kRoom + 4] = out[1].value + 1;
    const RecentRing last = {expected.data() + static_cast<ptrdiff_t>(2 * kRoom), kRoom};
    for (int i = 0; i < kLong; ++i) last.note(5 + i, i % kValues);
    last.note(5 + kLong, 9);
    EXPECT_EQ(ring, expected);
    EXPECT_EQ(slot[1], -1);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PenaltiesTest, testing::ValuesIn(all_backends()), setup_name);

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
