// Mixtures of experts, against a plain loop, with the same bits in any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/router.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

// A mixture with random weights, and random inputs and scores.
struct Mixture {
  int rows, in, inner, count, chosen;
  float factor = 0.7F;
  Precision precision = Precision::kFp32;
  std::vector<float> gate, up, down;  // of all experts, one after the other
  std::vector<float> x, scores, out;

  Mixture(int rows, int in, int inner, int count, int chosen)
      : rows(rows),
        in(in),
        inner(inner),
        count(count),
        chosen(chosen),
        gate(random_floats(int64_t{count} * inner * in, 1, 1 / std::sqrt(float(in)))),
        up(random_floats(int64_t{count} * inner * in, 2, 1 / std::sqrt(float(in)))),
        down(random_floats(int64_t{count} * inner * in, 3, 1 / std::sqrt(float(inner)))),
        x(random_floats(int64_t{rows} * in, 4)),
        scores(random_floats(int64_t{rows} * count, 5)),
        out(random_floats(int64_t{rows} * in, 6)) {}

  std::vector<Weight> pack(Backend& backend, const std::vector<float>& weights, int to,
                           int from) const {
    std::vector<Weight> packed;
    for (int e = 0; e < count; ++e) {
      const float* const first = weights.data() + int64_t{e} * to * from;
      packed.push_back(backend.pack({first, to, from}, {nullptr, 1, to}, precision));
    }
    return packed;
  }
  static std::vector<float> row_of(const std::vector<float>& matrix, int row, int cols) {
    return {matrix.begin() + int64_t{row} * cols, matrix.begin() + int64_t{row + 1} * cols};
  }
  std::vector<float> expert(const std::vector<float>& weights, int e) const {
    return row_of(weights, e, inner * in);
  }
};

// The outputs of rows [first, first + rows) as one call computes them.
std::vector<float> run(Backend& backend, const Mixture& mixture, int first, int rows) {
  const std::vector<Weight> gate = mixture.pack(backend, mixture.gate, mixture.inner, mixture.in);
  const std::vector<Weight> up = mixture.pack(backend, mixture.up, mixture.inner, mixture.in);
  const std::vector<Weight> down = mixture.pack(backend, mixture.down, mixture.in, mixture.inner);
  Guarded x(rows, mixture.in, 3), scores(rows, mixture.count, 1), out(rows, mixture.in, 2);
  for (int row = 0; row < rows; ++row) {
    std::ranges::copy(Mixture::row_of(mixture.x, first + row, mixture.in), x.row(row));
    std::ranges::copy(Mixture::row_of(mixture.scores, first + row, mixture.count), scores.row(row));
    std::ranges::copy(Mixture::row_of(mixture.out, first + row, mixture.in), out.row(row));
  }
  const int chosen = mixture.chosen;
  Guarded shares(rows, chosen), wide(rows, chosen * mixture.in),
      hidden(rows, chosen * mixture.inner);
  std::vector<int32_t> indices(static_cast<size_t>(rows) * chosen, -1);
  const ExpertRoom room = {{indices.data(), DType::kI32, rows, chosen, chosen},
                           shares.view(),
                           wide.view(),
                           hidden.view()};
  backend.experts(x.view(), scores.view(),
                  {gate, up, down, Activation::kSilu, chosen, mixture.factor}, room, out.view());
  for (Guarded* const matrix : {&x, &scores, &out, &shares, &wide, &hidden}) {
    matrix->expect_guards("experts");
  }
  return out.values();
}

// The same in double, with the experts in order of their scores.
reference::Vector expected(const Mixture& mixture, int row) {
  const std::vector<float> given = Mixture::row_of(mixture.x, row, mixture.in);
  const std::vector<float> scores = Mixture::row_of(mixture.scores, row, mixture.count);
  const reference::Vector x(given.begin(), given.end());
  std::vector<int> order(mixture.count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return scores[a] > scores[b]; });
  double sum = 0;
  for (int i = 0; i < mixture.chosen; ++i) sum += std::exp(double{scores[order[i]]});
  const std::vector<float> before = Mixture::row_of(mixture.out, row, mixture.in);
  reference::Vector out(before.begin(), before.end());
  for (int i = 0; i < mixture.chosen; ++i) {
    const int e = order[i];
    reference::Vector hidden = reference::linear(x, mixture.expert(mixture.gate, e), {});
    const reference::Vector up = reference::linear(x, mixture.expert(mixture.up, e), {});
    for (int k = 0; k < mixture.inner; ++k) {
      hidden[k] = hidden[k] / (1 + std::exp(-hidden[k])) * up[k];
    }
    const reference::Vector y = reference::linear(hidden, mixture.expert(mixture.down, e), {});
    const double share = std::exp(double{scores[e]}) / sum;
    for (int c = 0; c < mixture.in; ++c) out[c] += mixture.factor * share * y[c];
  }
  return out;
}

class ExpertsTest : public KernelTest {};

TEST_P(ExpertsTest, MatchesReference) {
  constexpr int kShapes[][4] = {{1, 1, 1, 1},     {17, 3, 2, 2},   {32, 33, 5, 2},
                                {100, 64, 12, 5}, {20, 40, 64, 8}, {300, 70, 6, 6}};
  for (const auto& [in, inner, count, chosen] : kShapes) {
    for (const int rows : {1, 2, 5, 33, 80}) {
      const Mixture mixture(rows, in, inner, count, chosen);
      const std::vector<float> found = run(backend(), mixture, 0, rows);
      for (int row = 0; row < rows; ++row) {
        const reference::Vector wanted = expected(mixture, row);
        for (int c = 0; c < in; ++c) {
          ASSERT_NEAR(found[static_cast<size_t>(row) * in + c], wanted[c],
                      2e-5 * std::max(1.0, std::abs(wanted[c])))
              << in << " x " << inner << ", " << chosen << " of " << count << ", row " << row;
        }
      }
    }
  }
}

TEST_P(ExpertsTest, BitsDoNotDependOnTheBatch) {
  for (const Precision precision : precisions_of(backend())) {
    Mixture mixture(90, 96, 64, 7, 3);
    mixture.precision = precision;
    const std::vector<float> all = run(backend(), mixture, 0, 90);
    const auto expect_same_rows = [&](int first, int rows) {
      const std::vector<float> found = run(backend(), mixture, first, rows);
      const std::vector<float> wanted(all.begin() + int64_t{first} * 96,
                                      all.begin() + int64_t{first + rows} * 96);
      EXPECT_TRUE(same_bits(found, wanted)) << rows << " rows from " << first;
    };
    for (const int row : {0, 1, 44, 89}) expect_same_rows(row, 1);
    expect_same_rows(3, 2);
    expect_same_rows(50, 17);
  }
}

// All rows use one expert, so that it has more rows than a block of a product.
TEST_P(ExpertsTest, AnExpertMayHaveAllRows) {
  Mixture mixture(100, 40, 33, 6, 1);
  for (int row = 0; row < mixture.rows; ++row) mixture.scores[size_t{6} * row + 4] = 50.0F;
  const std::vector<float> found = run(backend(), mixture, 0, 100);
  for (const int row : {0, 31, 32, 99}) {
    const reference::Vector wanted = expected(mixture, row);
    for (int c = 0; c < 40; ++c) {
      ASSERT_NEAR(found[static_cast<size_t>(row) * 40 + c], wanted[c], 1e-4) << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertsTest, testing::ValuesIn(all_setups()), setup_name);

TEST(Router, OfEqualScoresTheFirstIsChosen) {
  const std::vector<float> scores = {1.0F, 3.0F, 2.0F, 3.0F, 2.0F, 2.0F};
  int32_t chosen[4];
  float shares[4];
  choose_experts(scores.data(), 6, 4, chosen, shares);
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 4), (std::vector<int32_t>{1, 2, 3, 4}));
  const double sum = 2 + 2 * std::exp(-1.0);
  EXPECT_EQ(shares[0], static_cast<float>(1 / sum));
  EXPECT_EQ(shares[1], static_cast<float>(std::exp(-1.0) / sum));
}

TEST(Router, ScoresThatAreNotFiniteStillChooseExperts) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int32_t chosen[2];
  float shares[2];
  const std::vector<float> one_number = {kNan, kNan, -1.0F, kNan};
  choose_experts(one_number.data(), 4, 2, chosen, shares);
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 2), (std::vector<int32_t>{0, 2}));
  const std::vector<float> extremes = {-kInfinity, 0.0F, kInfinity, -kInfinity};
  choose_experts(extremes.data(), 4, 2, chosen, shares);
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 2), (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace runnel
