#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

struct Weights {
  Guarded scale, shift;
  explicit Weights(int width) : scale(1, width), shift(1, width) {
    scale.fill(random_floats(width, 11));
    shift.fill(random_floats(width, 12));
  }
  Norm norm(float eps) { return {scale.view(), shift.view(), eps}; }
};

std::vector<float> added(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum = a;
  for (size_t i = 0; i < b.size(); ++i) sum[i] += b[i];
  return sum;
}

// How much a rounding of the largest number can change the normed numbers: 1e-6 of it, in standard
// deviations.
double rounding_of(const reference::Vector& x, float eps) {
  double mean = 0, squares = 0, largest = 0;
  for (const double number : x) mean += number / std::ssize(x);
  for (const double number : x) squares += std::pow(number - mean, 2);
  for (const double number : x) largest = std::max(largest, std::abs(number));
  return 1e-6 * largest / std::sqrt(squares / std::ssize(x) + eps);
}

void expect_normed(const std::vector<float>& in, Weights& weights, float eps, Guarded& out) {
  const int width = out.cols();
  for (int row = 0; row < out.rows(); ++row) {
    const reference::Vector x(in.begin() + int64_t{row} * width,
                              in.begin() + int64_t{row + 1} * width);
    const reference::Vector y =
        reference::layer_norm(x, weights.scale.values(), weights.shift.values(), eps);
    const double rounding = rounding_of(x, eps);
    for (int col = 0; col < width; ++col) {
      ASSERT_NEAR(out.at(row, col), y[col], 1e-5 * std::max(1.0, std::abs(y[col])) + rounding)
          << "width " << width << " at " << row << ", " << col;
    }
  }
}

class NormTest : public KernelTest {};

TEST_P(NormTest, MatchesReference) {
  for (const int width : {1, 2, 3, 15, 16, 17, 30, 31, 32, 33, 100, 256, 300}) {
    for (const int rows : {1, 3, 70}) {
      Weights weights(width);
      Guarded x(rows, width, 3);
      Guarded residual(rows, width, 1);
      Guarded out(rows, width, 2);
      x.fill(random_floats(int64_t{rows} * width, 1, 3.0F));
      residual.fill(random_floats(int64_t{rows} * width, 2));
      backend().norm(x.view(), View{}, weights.norm(1e-5F), out.view());
      expect_normed(x.values(), weights, 1e-5F, out);
      backend().norm(x.view(), residual.view(), weights.norm(1e-5F), out.view());
      expect_normed(added(x.values(), residual.values()), weights, 1e-5F, out);
      out.expect_guards("norm");
    }
  }
}

TEST_P(NormTest, OutMayBeXOrTheResidual) {
  for (const int width : {17, 64}) {
    Weights weights(width);
    Guarded x(5, width, 3);
    Guarded residual(5, width);
    const std::vector<float> a = random_floats(5 * width, 3);
    const std::vector<float> b = random_floats(5 * width, 4);
    x.fill(a);
    residual.fill(b);
    backend().norm(x.view(), residual.view(), weights.norm(1e-5F), x.view());
    expect_normed(added(a, b), weights, 1e-5F, x);
    x.fill(a);
    backend().norm(x.view(), residual.view(), weights.norm(1e-5F), residual.view());
    expect_normed(added(a, b), weights, 1e-5F, residual);
    residual.expect_guards("norm");
  }
}

// With a mean far from zero, one pass over the squares would lose the variance.
TEST_P(NormTest, LargeMeanKeepsItsVariance) {
  const int width = 100;
  Weights weights(width);
  Guarded x(2, width);
  Guarded out(2, width);
  std::vector<float> values = random_floats(2 * width, 8);
  for (float& value : values) value = std::round(value * 64.0F) / 64.0F + 10000.0F;
  x.fill(values);
  backend().norm(x.view(), View{}, weights.norm(1e-5F), out.view());
  for (int row = 0; row < 2; ++row) {
    const reference::Vector in(values.begin() + row * width, values.begin() + (row + 1) * width);
    const reference::Vector y =
        reference::layer_norm(in, weights.scale.values(), weights.shift.values(), 1e-5F);
    for (int col = 0; col < width; ++col) ASSERT_NEAR(out.at(row, col), y[col], 0.02);
  }
}

TEST_P(NormTest, BitsDoNotDependOnTheBatchOrOnThreads) {
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  const int width = 101;
  Weights weights(width);
  Guarded x(90, width);
  Guarded out(90, width);
  x.fill(random_floats(90 * width, 5));
  backend().norm(x.view(), View{}, weights.norm(1e-5F), out.view());
  for (const int row : {0, 1, 44, 89}) {
    Guarded alone(1, width);
    View one = x.view();
    one.data = x.row(row);
    one.rows = 1;
    single->norm(one, View{}, weights.norm(1e-5F), alone.view());
    const std::vector<float> inside(out.row(row), out.row(row) + width);
    EXPECT_TRUE(same_bits(inside, alone.values()));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormTest, testing::ValuesIn(all_backends()), setup_name);

double gate_of(Activation activation, double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  if (activation == Activation::kSigmoid) return sigmoid;
  return activation == Activation::kSilu ? x * sigmoid : x;
}

// Normalizes x in `norm.groups` slices, without a gate.
reference::Vector normed(const reference::Vector& x, Weights& weights, const Norm& norm) {
  const size_t width = x.size() / norm.groups;
  reference::Vector y;
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0;
    for (size_t i = begin; i < begin + width; ++i) mean += x[i] / static_cast<double>(width);
    if (norm.kind == NormKind::kRms) mean = 0;
    double variance = norm.eps;
    for (size_t i = begin; i < begin + width; ++i) {
      variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(width);
    }
    for (size_t i = begin; i < begin + width; ++i) {
      const int column = static_cast<int>(i);
      const double shift = norm.kind == NormKind::kRms ? 0.0 : weights.shift.at(0, column);
      y.push_back((x[i] - mean) / std::sqrt(variance) * weights.scale.at(0, column) + shift);
    }
  }
  return y;
}

// Norms of slices, by the root mean square, and with a gate.
class WiderNorm : public KernelTest {
 protected:
  // A gate's activation, whether the gate comes before the norm, and whether a term is added.
  struct Gating {
    Activation activation;
    bool before, plus;
  };

  void expect_normed(int rows, int width, NormKind kind, int groups, const Gating* gating) {
    Weights weights(width);
    Guarded x(rows, width, 3), gate(rows, width, 1), plus(rows, width, 2), out(rows, width, 2);
    x.fill(random_floats(int64_t{rows} * width, 1, 3.0F));
    gate.fill(random_floats(int64_t{rows} * width, 2));
    plus.fill(random_floats(int64_t{rows} * width, 3));
    Norm norm = weights.norm(1e-5F);
    norm.kind = kind;
    norm.groups = groups;
    if (kind == NormKind::kRms) norm.shift = {};
    if (gating == nullptr) {
      backend().norm(x.view(), View{}, norm, out.view());
    } else {
      backend().gated_norm(
          x.view(), norm,
          {gate.view(), gating->activation, gating->before, gating->plus ? plus.view() : View{}},
          out.view());
    }
    out.expect_guards("norm");
    for (int row = 0; row < rows; ++row) {
      reference::Vector given(x.row(row), x.row(row) + width);
      const auto by = [&](int c) { return gate_of(gating->activation, gate.at(row, c)); };
      for (int c = 0; gating != nullptr && gating->before && c < width; ++c) given[c] *= by(c);
      reference::Vector y = normed(given, weights, norm);
      for (int c = 0; c < width; ++c) {
        if (gating != nullptr && gating->plus) y[c] += plus.at(row, c);
        if (gating != nullptr && !gating->before) y[c] *= by(c);
        ASSERT_NEAR(out.at(row, c), y[c], 2e-5 * std::max(1.0, std::abs(y[c])))
            << rows << " x " << width << " in " << groups << " at " << row << ", " << c;
      }
    }
  }
};

TEST_P(WiderNorm, MatchesReference) {
  const Gating gatings[] = {{Activation::kSilu, true, false},
                            {Activation::kSilu, false, false},
                            {Activation::kSigmoid, false, false},
                            {Activation::kNone, false, true}};
  for (const int size : {1, 3, 16, 17, 33, 64, 100}) {
    for (const int groups : {1, 2, 5}) {
      for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
        expect_normed(3, groups * size, kind, groups, nullptr);
        for (const Gating& gating : gatings) {
          expect_normed(3, groups * size, kind, groups, &gating);
        }
      }
    }
  }
  expect_normed(90, 256, NormKind::kLayer, 4, &gatings[3]);
  expect_normed(90, 256, NormKind::kRms, 2, &gatings[0]);
}

TEST_P(WiderNorm, BitsDoNotDependOnTheBatchOrOnThreadsAndOutMayBeX) {
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  const int width = 102;
  Weights weights(width);
  Guarded x(90, width), gate(90, width), out(90, width);
  x.fill(random_floats(90 * width, 5));
  gate.fill(random_floats(90 * width, 6));
  Norm norm = {weights.scale.view(), View{}, 1e-5F, NormKind::kRms, 3};
  for (const bool before : {false, true}) {
    const NormGate all = {gate.view(), Activation::kSilu, before};
    backend().gated_norm(x.view(), norm, all, out.view());
    for (const int row : {0, 1, 44, 89}) {
      Guarded alone(1, width);
      alone.fill({x.row(row), x.row(row) + width});
      const NormGate one = {gate.view().slice(row, 1), Activation::kSilu, before};
      single->gated_norm(alone.view(), norm, one, alone.view());
      EXPECT_TRUE(same_bits({out.row(row), out.row(row) + width}, alone.values()));
    }
  }
}

TEST_P(WiderNorm, WithoutANormOnlyTheGateIsApplied) {
  const int width = 102;
  Guarded x(3, width, 2), gate(3, width), out(3, width, 1);
  x.fill(random_floats(3 * width, 5));
  gate.fill(random_floats(3 * width, 6));
  for (const bool before : {false, true}) {
    backend().gated_norm(x.view(), {{}, {}, 0.0F, NormKind::kNone, 2},
                         {gate.view(), Activation::kSilu, before}, out.view());
    out.expect_guards("norm");
    for (int row = 0; row < 3; ++row) {
      for (int c = 0; c < width; ++c) {
        const double y = x.at(row, c) * gate_of(Activation::kSilu, gate.at(row, c));
        ASSERT_NEAR(out.at(row, c), y, 1e-5 * std::max(1.0, std::abs(y))) << row << ", " << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WiderNorm, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
