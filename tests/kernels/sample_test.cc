// Tests sample() and score(): chosen values, positions, pending values, counts of remaining values,
// freezing, and that bits do not depend on the batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <vector>

#include "kernels/philox.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr Head kCategorical = {HeadKind::kCategorical, 19, 0};
constexpr Head kMixture = {HeadKind::kMixtureOfLogistics, 256, 3};
constexpr TopLogProb kUntouched = {-7, 7.0F};

// Memory for the outputs of `rows` rows.
struct Written {
  explicit Written(int rows) : rows(rows), top(rows * kMaxTopLogProbs, kUntouched) {}

  SampledTo to() { return {rows.data(), top.data()}; }
  const Sampled& operator[](int row) const { return rows[row]; }

  std::vector<Sampled> rows;
  std::vector<TopLogProb> top;
};

class Sample : public KernelTest {};

TEST_P(Sample, AdvancesEveryRow) {
  // Four rows: sampling, pending after two inputs, frozen, and sampling its last value.
  int32_t slot[] = {3, 0, -1, 1};
  const int32_t first[] = {0, 1, 3, 4, 5};
  const int32_t head_row[] = {1, -1, 0, 0};
  const int32_t pending[] = {-1, 12, -1, -1};
  Control control[4];
  for (int i = 0; i < 4; ++i) {
    control[i].position = 10 * i;
    control[i].pending = 100;
    control[i].remaining = 5;
    control[i].seed = static_cast<uint64_t>(i);
  }
  control[1].remaining = 1;
  Guarded head(2, 19, 1);
  head.fill(random_floats(38, 1));
  Written emitted(4);
  backend().sample({slot, first, 4}, {head_row, pending}, kCategorical, head.view(), control,
                   emitted.to());

  EXPECT_EQ(emitted[0].row, 0);
  EXPECT_EQ(emitted[0].position, 31);
  EXPECT_EQ(control[3].position, 31);
  EXPECT_EQ(control[3].pending, emitted[0].value);
  EXPECT_EQ(control[3].remaining, 4);
  EXPECT_EQ(slot[0], 3);

  EXPECT_EQ(emitted[1].row, -1);
  EXPECT_EQ(control[0].position, 2);
  EXPECT_EQ(control[0].pending, 12);
  EXPECT_EQ(control[0].remaining, 5);
  EXPECT_EQ(slot[1], 0);

  EXPECT_EQ(emitted[2].row, -1);
  EXPECT_EQ(control[2].position, 20);
  EXPECT_EQ(control[2].pending, 100);

  EXPECT_EQ(emitted[3].row, 3);
  EXPECT_EQ(emitted[3].position, 11);
  EXPECT_EQ(control[1].remaining, 0);
  EXPECT_EQ(control[1].pending, emitted[3].value);
  EXPECT_EQ(slot[3], -1) << "a row with nothing left to sample freezes";
  head.expect_guards("sample");
}

// The value is the one that the reference chooses with the position's two uniform numbers.
TEST_P(Sample, FollowsTheRandomNumbersOfThePosition) {
  for (const Head& kind : {kCategorical, kMixture}) {
    constexpr int kRows = 200;
    Guarded head(kRows, kind.width(), 2);
    head.fill(random_floats(int64_t{kRows} * kind.width(), 4));
    std::vector<int32_t> slot(kRows), first(kRows + 1), head_row(kRows), pending(kRows, -1);
    std::vector<Control> control(kRows);
    for (int i = 0; i < kRows; ++i) {
      slot[i] = head_row[i] = i;
      first[i + 1] = i + 1;
      control[i].seed = uint64_t{0x123456789} * static_cast<uint64_t>(i);
      control[i].stream = static_cast<uint32_t>(i % 3);
      control[i].position = int64_t{1} << (i % 40);
      control[i].remaining = 9;
      control[i].sampling.temperature = i % 2 == 0 ? 1.0F : 0.7F;
    }
    Written emitted(kRows);
    backend().sample({slot.data(), first.data(), kRows}, {head_row.data(), pending.data()}, kind,
                     head.view(), control.data(), emitted.to());
    for (int i = 0; i < kRows; ++i) {
      const int64_t position = (int64_t{1} << (i % 40)) + 1;
      const PhiloxCounter words = philox_words(control[i].seed, position, control[i].stream, 0);
      const reference::Vector row(head.row(i), head.row(i) + kind.width());
      const int32_t expected =
          reference::sample(kind, row, control[i].sampling, philox_uniform(words.word[0]),
                            philox_uniform(words.word[1]));
      EXPECT_EQ(emitted[i].value, expected) << "row " << i;
      EXPECT_EQ(emitted[i].position, position);
      EXPECT_NEAR(emitted[i].log_prob, reference::log_probs(kind, row)[expected], 2e-5);
    }
  }
}

// Tests filters, including vocabularies larger than a block of threads, and values that are equally
// likely. The random number must be in the reference's interval of the sampled value.
TEST_P(Sample, FiltersMatchTheReference) {
  const Sampling filters[] = {
      {.top_k = 1},     {.top_k = 40},
      {.top_p = 0.3F},  {.temperature = 1.7F, .top_p = 0.999F},
      {.min_p = 0.05F}, {.temperature = 0.8F, .top_k = 100, .top_p = 0.9F, .min_p = 0.01F}};
  for (const int values : {1, 3, 255, 256, 257, 5000, 70000}) {
    const Head kind = {HeadKind::kCategorical, values, 0};
    constexpr int kRows = std::size(filters);
    Guarded head(kRows, values, 1);
    std::vector<float> logits = random_floats(int64_t{kRows} * values, 8, 3.0F);
    for (float& x : logits) x = std::round(8 * x) / 8;
    head.fill(logits);
    std::vector<int32_t> slot(kRows), first(kRows + 1), head_row(kRows), pending(kRows, -1);
    std::vector<Control> control(kRows);
    for (int i = 0; i < kRows; ++i) {
      slot[i] = head_row[i] = i;
      first[i + 1] = i + 1;
      control[i].seed = static_cast<uint64_t>(values);
      control[i].remaining = 2;
      control[i].sampling = filters[i];
    }
    Written emitted(kRows);
    backend().sample({slot.data(), first.data(), kRows}, {head_row.data(), pending.data()}, kind,
                     head.view(), control.data(), emitted.to());
    for (int i = 0; i < kRows; ++i) {
      const reference::Vector row(head.row(i), head.row(i) + values);
      const reference::Vector p = reference::filtered_probabilities(row, filters[i]);
      const double u = philox_uniform(philox_words(control[i].seed, 1, 0, 0).word[0]);
      const int32_t value = emitted[i].value;
      ASSERT_GE(value, 0);
      ASSERT_LT(value, values);
      const double before = std::accumulate(p.begin(), p.begin() + value, 0.0);
      EXPECT_GT(p[value], 0) << values << " values, filter " << i;
      EXPECT_LT(before, u + 1e-6) << values << " values, filter " << i;
      EXPECT_GT(before + p[value], u - 1e-6) << values << " values, filter " << i;
    }
    head.expect_guards("sample");
  }
}

// The same row alone, on one thread, gives the same bytes.
TEST_P(Sample, BitsDoNotDependOnTheBatch) {
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  constexpr int kRows = 64;
  for (const Head& kind : {Head{HeadKind::kCategorical, 1000, 0}, kMixture}) {
    Guarded head(kRows, kind.width());
    head.fill(random_floats(int64_t{kRows} * kind.width(), 5));
    std::vector<int32_t> slot(kRows), first(kRows + 1), head_row(kRows), pending(kRows, -1);
    std::vector<Control> together(kRows);
    for (int i = 0; i < kRows; ++i) {
      slot[i] = head_row[i] = i;
      first[i + 1] = i + 1;
      together[i].seed = static_cast<uint64_t>(i) << 33;
      together[i].remaining = 2;
      together[i].top_log_probs = i % 4 == 0 ? 0 : 7;
      if (kind.kind == HeadKind::kCategorical) together[i].sampling.top_p = 0.9F;
    }
    std::vector<Control> alone = together;
    Written emitted(kRows);
    backend().sample({slot.data(), first.data(), kRows}, {head_row.data(), pending.data()}, kind,
                     head.view(), together.data(), emitted.to());
    for (int i = 0; i < kRows; ++i) {
      int32_t at = i;
      const int32_t ends[] = {0, 1};
      Written one(1);
      single->sample({&at, ends, 1}, {&head_row[i], &pending[i]}, kind, head.view(), alone.data(),
                     one.to());
      EXPECT_EQ(one[0].value, emitted[i].value);
      EXPECT_EQ(one[0].log_prob, emitted[i].log_prob);
      const int count = i % 4 == 0 ? 0 : 7;
      EXPECT_EQ(one[0].top_count, count);
      EXPECT_EQ(emitted[i].top_count, count);
      for (int j = 0; j < kMaxTopLogProbs; ++j) {
        const TopLogProb& found = emitted.top[i * kMaxTopLogProbs + j];
        const TopLogProb& expected = j < count ? one.top[j] : kUntouched;
        EXPECT_EQ(found.value, expected.value);
        EXPECT_EQ(found.log_prob, expected.log_prob);
      }
      EXPECT_EQ(alone[i].pending, together[i].pending);
    }
  }
}

// Several steps run without the host: a row freezes when it has no values left to sample.
TEST_P(Sample, RowsFreezeOneByOne) {
  int32_t slot[] = {0, 1, 2};
  const int32_t first[] = {0, 1, 2, 3};
  const int32_t head_row[] = {0, 1, 2};
  const int32_t pending[] = {-1, -1, -1};
  Control control[3];
  for (int i = 0; i < 3; ++i) control[i].remaining = i + 1;
  Guarded head(3, 19);
  head.fill(random_floats(57, 6));
  for (int step = 0; step < 4; ++step) {
    Written emitted(3);
    backend().sample({slot, first, 3}, {head_row, pending}, kCategorical, head.view(), control,
                     emitted.to());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(emitted[i].row, step <= i ? i : -1);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(control[i].position, i + 1);
    EXPECT_EQ(control[i].remaining, 0);
  }
}

TEST_P(Sample, ScoresEveryRow) {
  for (const Head& kind : {kCategorical, kMixture}) {
    constexpr int kRows = 300;
    Guarded head(kRows, kind.width(), 1);
    head.fill(random_floats(int64_t{kRows} * kind.width(), 7));
    std::vector<int32_t> targets(kRows);
    for (int i = 0; i < kRows; ++i) targets[i] = i * 7 % kind.values;
    Guarded log_probs(1, kRows);
    backend().score(kind, head.view(), {targets.data(), DType::kI32, 1, kRows, kRows},
                    log_probs.view());
    log_probs.expect_guards("score");
    for (int i = 0; i < kRows; ++i) {
      const reference::Vector row(head.row(i), head.row(i) + kind.width());
      const double expected = reference::log_probs(kind, row)[targets[i]];
      EXPECT_NEAR(log_probs.at(0, i), expected, 1e-6 * (1 + std::abs(expected)));
    }
  }
}

TEST_P(Sample, NoRowsIsNothing) {
  const int32_t first[] = {0};
  Guarded head(0, 19);
  backend().sample({nullptr, first, 0}, {nullptr, nullptr}, kCategorical, head.view(), nullptr,
                   {nullptr, nullptr});
  backend().score(kCategorical, head.view(), {nullptr, DType::kI32, 1, 0, 0},
                  {nullptr, DType::kF32, 1, 0, 0});
  head.expect_guards("the head");  // and no null pointer was read
}

INSTANTIATE_TEST_SUITE_P(Backends, Sample, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
