// Mixtures of experts, against a plain loop, with the same bits in any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/choose_experts.h"
#include "kernels/quantize_blocks.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

// A mixture with random weights, and random inputs and scores.
struct RandomMixture {
  int rows, in, inner, count;
  Router router;
  bool is_gated = true;
  float factor = 0.7F;
  Precision precision = Precision::kFp32;
  // With kBlocks: the type to which weights are quantized, and that of the last expert.
  StoredType stored = StoredType::kF32, last = StoredType::kF32;
  std::vector<float> gate, up, down;  // of all experts, one after the other
  std::vector<float> x, scores, out, bias;

  RandomMixture(int rows, int in, int inner, int count, int chosen)
      : rows(rows),
        in(in),
        inner(inner),
        count(count),
        router{.chosen = chosen},
        gate(random_floats(int64_t{count} * inner * in, 1, 1 / std::sqrt(float(in)))),
        up(random_floats(int64_t{count} * inner * in, 2, 1 / std::sqrt(float(in)))),
        down(random_floats(int64_t{count} * inner * in, 3, 1 / std::sqrt(float(inner)))),
        x(random_floats(int64_t{rows} * in, 4)),
        scores(random_floats(int64_t{rows} * count, 5)),
        out(random_floats(int64_t{rows} * in, 6)),
        bias(random_floats(count, 7)) {}

  std::vector<Weight> pack(Backend& backend, const std::vector<float>& weights, int to,
                           int from) const {
    std::vector<Weight> packed;
    const int64_t size = int64_t{to} * from;
    for (int e = 0; e < count; ++e) {
      const std::span<const float> numbers(weights.data() + e * size, static_cast<size_t>(size));
      const std::vector<std::byte> blocks = quantized(e, numbers);
      const HostTensor weight = blocks.empty()
                                    ? HostTensor{numbers.data(), to, from}
                                    : HostTensor{blocks.data(), to, from, DType::kF32, type_of(e)};
      packed.push_back(backend.pack(weight, {nullptr, 1, to}, precision));
    }
    return packed;
  }
  StoredType type_of(int expert) const { return expert + 1 == count ? last : stored; }
  // The weights of an expert in blocks. Empty if they are not in blocks.
  std::vector<std::byte> quantized(int expert, std::span<const float> weights) const {
    if (!is_blocks(type_of(expert))) return {};
    std::vector<std::byte> blocks(bytes_of(type_of(expert), std::ssize(weights)));
    quantize_blocks(type_of(expert), weights, blocks.data());
    return blocks;
  }
  // The same with the numbers that its blocks stand for.
  RandomMixture widened() const {
    RandomMixture mixture = *this;
    const size_t size = static_cast<size_t>(in) * inner;
    for (std::vector<float>* const weights : {&mixture.gate, &mixture.up, &mixture.down}) {
      for (int e = 0; e < count; ++e) {
        const std::span<float> numbers(weights->data() + e * size, size);
        const std::vector<std::byte> blocks = quantized(e, numbers);
        if (!blocks.empty()) widen_blocks(type_of(e), blocks.data(), 0, numbers);
      }
    }
    return mixture;
  }
  static std::vector<float> row_of(const std::vector<float>& matrix, int row, int cols) {
    return {matrix.begin() + int64_t{row} * cols, matrix.begin() + int64_t{row + 1} * cols};
  }
  // The same with a router of kSigmoid, which has a bias.
  RandomMixture by_sigmoid() const {
    RandomMixture mixture = *this;
    mixture.router.kind = RouterKind::kSigmoid;
    mixture.router.eps = 0.25F;
    return mixture;
  }
  // The same without gates.
  RandomMixture without_gates() const {
    RandomMixture mixture = *this;
    mixture.is_gated = false;
    return mixture;
  }
  // The same with the last expert for all inputs.
  RandomMixture with_shared() const {
    RandomMixture mixture = *this;
    mixture.router.shared = true;
    return mixture;
  }
  std::vector<float> expert(const std::vector<float>& weights, int e) const {
    return row_of(weights, e, inner * in);
  }
};

// The outputs of rows [first, first + rows) as one call computes them.
std::vector<float> mixed(Backend& backend, const RandomMixture& mixture, int first, int rows) {
  std::vector<Weight> gate = mixture.pack(backend, mixture.gate, mixture.inner, mixture.in);
  if (!mixture.is_gated) gate.clear();
  const std::vector<Weight> up = mixture.pack(backend, mixture.up, mixture.inner, mixture.in);
  const std::vector<Weight> down = mixture.pack(backend, mixture.down, mixture.in, mixture.inner);
  Guarded x(rows, mixture.in, 3), scores(rows, mixture.count, 1), out(rows, mixture.in, 2);
  for (int row = 0; row < rows; ++row) {
    std::ranges::copy(RandomMixture::row_of(mixture.x, first + row, mixture.in), x.row(row));
    std::ranges::copy(RandomMixture::row_of(mixture.scores, first + row, mixture.count),
                      scores.row(row));
    std::ranges::copy(RandomMixture::row_of(mixture.out, first + row, mixture.in), out.row(row));
  }
  Router router = mixture.router;
  if (router.kind == RouterKind::kSigmoid) router.bias = mixture.bias.data();
  const int used = router.used();
  Guarded shares(rows, used), wide(rows, used * mixture.in), hidden(rows, used * mixture.inner);
  std::vector<int32_t> indices(static_cast<size_t>(rows) * used, -1);
  const ExpertRoom room = {
      {indices.data(), DType::kI32, rows, used, used}, shares.view(), wide.view(), hidden.view()};
  Experts experts = {gate,   up,
                     down,   mixture.is_gated ? Activation::kSilu : Activation::kSquaredRelu,
                     router, mixture.factor};
  const Buffer table = backend.expert_table(experts);
  experts.table = table.data();
  backend.experts(x.view(), scores.view(), experts, room, out.view());
  for (Guarded* const matrix : {&x, &scores, &out, &shares, &wide, &hidden}) {
    matrix->expect_guards("experts");
  }
  return out.values();
}

// The experts that a row uses, and their shares, in double.
std::vector<std::pair<int, double>> shares_of(const RandomMixture& mixture, int row) {
  const std::vector<float> scores = RandomMixture::row_of(mixture.scores, row, mixture.count);
  const bool is_sigmoid = mixture.router.kind == RouterKind::kSigmoid;
  const auto share = [&](int e) {
    return is_sigmoid ? 1 / (1 + std::exp(-double{scores[e]})) : std::exp(double{scores[e]});
  };
  std::vector<int> order(mixture.router.shared ? mixture.count - 1 : mixture.count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    return is_sigmoid ? share(a) + mixture.bias[a] > share(b) + mixture.bias[b]
                      : scores[a] > scores[b];
  });
  order.resize(mixture.router.chosen);
  double sum = is_sigmoid ? mixture.router.eps : 0;
  for (const int e : order) sum += share(e);
  std::vector<std::pair<int, double>> all;
  for (const int e : order) all.emplace_back(e, share(e) / sum);
  if (mixture.router.shared) {
    all.emplace_back(mixture.count - 1, 1 / (1 + std::exp(-double{scores.back()})));
  }
  return all;
}

reference::Vector expected(const RandomMixture& mixture, int row) {
  const std::vector<float> given = RandomMixture::row_of(mixture.x, row, mixture.in);
  const reference::Vector x(given.begin(), given.end());
  const std::vector<float> before = RandomMixture::row_of(mixture.out, row, mixture.in);
  reference::Vector out(before.begin(), before.end());
  for (const auto& [e, share] : shares_of(mixture, row)) {
    reference::Vector hidden = reference::linear(x, mixture.expert(mixture.gate, e), {});
    const reference::Vector up = reference::linear(x, mixture.expert(mixture.up, e), {});
    for (int k = 0; k < mixture.inner; ++k) {
      const double gated = hidden[k] / (1 + std::exp(-hidden[k])) * up[k];
      hidden[k] = mixture.is_gated ? gated : std::pow(std::max(up[k], 0.0), 2);
    }
    const reference::Vector y = reference::linear(hidden, mixture.expert(mixture.down, e), {});
    for (int c = 0; c < mixture.in; ++c) out[c] += mixture.factor * share * y[c];
  }
  return out;
}

std::vector<reference::Vector> all_expected(const RandomMixture& mixture) {
  std::vector<reference::Vector> rows;
  for (int row = 0; row < mixture.rows; ++row) rows.push_back(expected(mixture, row));
  return rows;
}

// `wanted`: at least as many rows as the mixture has.
void expect_close(const RandomMixture& mixture, const std::vector<float>& found,
                  const std::vector<reference::Vector>& wanted, double error = 2e-5) {
  for (int row = 0; row < mixture.rows; ++row) {
    for (int c = 0; c < mixture.in; ++c) {
      ASSERT_NEAR(found[static_cast<size_t>(row) * mixture.in + c], wanted[row][c],
                  error * std::max(1.0, std::abs(wanted[row][c])))
          << mixture.in << " x " << mixture.inner << ", " << mixture.router.chosen << " of "
          << mixture.count << ", row " << row;
    }
  }
}

class ExpertsTest : public KernelTest {};

// A mixture with up to this many rows, and its expected outputs, which take longer to compute than
// the outputs of a backend.
constexpr int kMostRows = 80;
struct Case {
  explicit Case(const RandomMixture& mixture) : mixture(mixture), wanted(all_expected(mixture)) {}

  RandomMixture mixture;
  std::vector<reference::Vector> wanted;
};

std::vector<Case> make_cases() {
  constexpr int kShapes[][4] = {{1, 1, 1, 1},     {17, 3, 2, 2},   {32, 33, 5, 2},
                                {100, 64, 12, 5}, {20, 40, 64, 8}, {300, 70, 6, 6}};
  std::vector<Case> cases;
  for (const auto& [in, inner, count, chosen] : kShapes) {
    const RandomMixture mixture(kMostRows, in, inner, count, chosen);
    cases.emplace_back(mixture);
    cases.emplace_back(mixture.by_sigmoid());
    cases.emplace_back(mixture.without_gates());
    if (chosen < count) cases.emplace_back(mixture.with_shared());
  }
  return cases;
}

TEST_P(ExpertsTest, MatchesReference) {
  static const std::vector<Case> kCases = make_cases();
  for (const Case& one : kCases) {
    for (const int rows : {1, 2, 5, 33, kMostRows}) {
      RandomMixture mixture = one.mixture;
      mixture.rows = rows;
      expect_close(mixture, mixed(backend(), mixture, 0, rows), one.wanted);
    }
  }
}

TEST_P(ExpertsTest, BitsDoNotDependOnTheBatchOrOnThreads) {
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  for (const Precision precision : precisions_of(backend())) {
    RandomMixture mixture = RandomMixture(90, 96, 64, 7, 3).with_shared();
    mixture.precision = precision;
    const std::vector<float> all = mixed(backend(), mixture, 0, 90);
    const auto expect_same_rows = [&](int first, int rows) {
      const std::vector<float> found = mixed(*single, mixture, first, rows);
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
  RandomMixture mixture(100, 40, 33, 6, 1);
  for (int row = 0; row < mixture.rows; ++row) mixture.scores[size_t{6} * row + 4] = 50.0F;
  expect_close(mixture, mixed(backend(), mixture, 0, 100), all_expected(mixture));
}

// Inputs keep 15 bits. The expert that all inputs use may have a type of its own.
TEST_P(ExpertsTest, WeightsMayBeInBlocks) {
  constexpr std::pair<StoredType, StoredType> kPairs[] = {{StoredType::kQ4_0, StoredType::kQ4_0},
                                                          {StoredType::kQ8_0, StoredType::kQ4_0},
                                                          {StoredType::kQ4_0, StoredType::kF32},
                                                          {StoredType::kF32, StoredType::kQ8_0}};
  for (const auto& [type, last] : kPairs) {
    for (const bool is_gated : {true, false}) {
      RandomMixture mixture = RandomMixture(7, 64, 96, 7, 3).with_shared();
      mixture.is_gated = is_gated;
      mixture.precision = Precision::kBlocks;
      mixture.stored = type;
      mixture.last = last;
      const std::vector<float> found = mixed(backend(), mixture, 0, 7);
      expect_close(mixture, found, all_expected(mixture.widened()), 5e-4);
      const std::vector<float> one = mixed(backend(), mixture, 3, 1);
      EXPECT_TRUE(same_bits(one, RandomMixture::row_of(found, 3, 64)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertsTest, testing::ValuesIn(all_backends()), setup_name);

using Choice = std::vector<std::pair<int32_t, float>>;

Choice choose(const Router& router, const std::vector<float>& scores) {
  std::vector<int32_t> used(router.used());
  std::vector<float> shares(used.size());
  choose_experts(router, scores.data(), static_cast<int>(scores.size()), used.data(),
                 shares.data());
  Choice choice;
  for (size_t i = 0; i < used.size(); ++i) choice.emplace_back(used[i], shares[i]);
  return choice;
}

TEST(RouterTest, OfEqualScoresTheFirstIsChosen) {
  const double sum = 2 + 2 * std::exp(-1.0);
  const auto high = static_cast<float>(1 / sum);
  const auto low = static_cast<float>(std::exp(-1.0) / sum);
  EXPECT_EQ(choose({.chosen = 4}, {1.0F, 3.0F, 2.0F, 3.0F, 2.0F, 2.0F}),
            (Choice{{1, high}, {2, low}, {3, high}, {4, low}}));
}

TEST(RouterTest, ABiasDecidesTheChoiceAndNotTheShares) {
  const float bias[] = {0.0F, 0.6F, 0.0F};
  const Router router = {
      .kind = RouterKind::kSigmoid, .chosen = 1, .shared = false, .bias = bias, .eps = 0.5F};
  EXPECT_EQ(choose(router, {0.0F, 0.0F, 2.0F}), (Choice{{1, 0.5F}}));
}

TEST(RouterTest, TheSharedExpertIsTheLast) {
  const Router router = {.chosen = 1, .shared = true};
  EXPECT_EQ(choose(router, {1.0F, 2.0F, 0.0F}), (Choice{{1, 1.0F}, {2, 0.5F}}));
}

TEST(RouterTest, ScoresThatAreNotFiniteStillChooseExperts) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto chosen = [](const std::vector<float>& scores) {
    const Choice choice = choose({.chosen = 2}, scores);
    return std::pair(choice[0].first, choice[1].first);
  };
  EXPECT_EQ(chosen({kNan, kNan, -1.0F, kNan}), std::pair(0, 2));
  EXPECT_EQ(chosen({-kInfinity, 0.0F, kInfinity, -kInfinity}), std::pair(1, 2));
}

}  // namespace
}  // namespace runnel
