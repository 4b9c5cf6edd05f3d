#include <gtest/gtest.h>

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

void expect_normed(const std::vector<float>& in, Weights& weights, float eps, Guarded& out) {
  const int width = out.cols();
  for (int row = 0; row < out.rows(); ++row) {
    const reference::Vector x(in.begin() + int64_t{row} * width,
                              in.begin() + int64_t{row + 1} * width);
    const reference::Vector y =
        reference::layer_norm(x, weights.scale.values(), weights.shift.values(), eps);
    for (int col = 0; col < width; ++col) {
      ASSERT_NEAR(out.at(row, col), y[col], 1e-5 * std::max(1.0, std::abs(y[col])))
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

// A mean far from zero: one pass over squares would lose the variance.
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

TEST_P(NormTest, BitsDoNotDependOnTheBatch) {
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
    backend().norm(one, View{}, weights.norm(1e-5F), alone.view());
    const std::vector<float> inside(out.row(row), out.row(row) + width);
    EXPECT_TRUE(same_bits(inside, alone.values()));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormTest, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
