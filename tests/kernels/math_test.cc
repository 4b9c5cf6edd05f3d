#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/scalar_math.h"
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

class Math : public KernelTest {
 protected:
  const Kernels& kernels() { return kernels_of(GetParam().isa); }
};

// `count` numbers, beginning with `first`, `step` apart.
std::vector<double> ladder(double first, double step, int count) {
  std::vector<double> x(count);
  for (int i = 0; i < count; ++i) x[i] = first + step * i;
  return x;
}

// `count` numbers, beginning with `first`, each of them `factor` times the previous one.
std::vector<double> powers(double first, double factor, int count) {
  std::vector<double> x(count, first);
  for (int i = 1; i < count; ++i) x[i] = x[i - 1] * factor;
  return x;
}

// The error in units in the last place of the true value, in fp32.
double ulps(float found, double expected) {
  const double unit = std::ldexp(1.0, std::ilogb(expected) - 23);
  return std::abs(found - expected) / unit;
}

TEST_P(Math, ExpIsAccurate) {
  std::vector<float> x;
  for (const double at : ladder(-87.0, 0.00137, 63500)) x.push_back(static_cast<float>(at));
  for (const float at : {-0.0F, -1e-30F, -1e-8F, -86.99999F, -0.34657359F, -0.34657362F})
    x.push_back(at);
  std::vector<float> y(x.size(), NAN);
  kernels().exp(x.data(), static_cast<int>(x.size()), 0.0F, 1.0F, y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
  }
  // A multiply-add of portable code rounds twice.
  EXPECT_LT(worst, GetParam().isa == Isa::kPortable ? 1.25 : 1.0);
}

TEST_P(Math, ExpOfExtremeInputs) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F, 5.0F, infinity, -87.5F, -1e30F, -infinity, 1e30F};
  const std::vector<float> expected = {1, 1, 1, 0, 0, 0, 1};
  std::vector<float> y(x.size(), NAN);
  kernels().exp(x.data(), static_cast<int>(x.size()), 0.0F, 1.0F, y.data());
  EXPECT_EQ(y, expected);
}

TEST_P(Math, ExpShiftsAndScalesAnyCount) {
  for (int count = 1; count <= 40; ++count) {
    Guarded x(1, count);
    Guarded y(1, count);
    x.fill(random_floats(count, static_cast<uint32_t>(count)));
    kernels().exp(x.row(0), count, 3.0F, 0.5F, y.row(0));
    for (int i = 0; i < count; ++i) {
      EXPECT_NEAR(y.at(0, i), std::exp(std::min((x.at(0, i) - 3.0) * 0.5, 0.0)), 3e-7);
    }
    y.expect_guards("exp");
  }
}

TEST_P(Math, FiniteBoundsEverything) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int count = 1; count <= 40; ++count) {
    for (int at = 0; at < count; ++at) {
      Guarded x(1, count);
      Guarded y(1, count);
      std::vector<float> values(count, -2.0F);
      values[at] = 7.0F;
      x.fill(values);
      EXPECT_EQ(kernels().finite(x.row(0), count, y.row(0)), 7.0F);
      EXPECT_EQ(y.values(), values);
      x.at(0, at) = NAN;
      kernels().finite(x.row(0), count, y.row(0));
      EXPECT_EQ(y.at(0, at), -1e30F);
      x.at(0, at) = infinity;
      EXPECT_EQ(kernels().finite(x.row(0), count, y.row(0)), 1e30F);
      x.at(0, at) = -infinity;
      kernels().finite(x.row(0), count, y.row(0));
      EXPECT_EQ(y.at(0, at), -1e30F);
      y.expect_guards("finite");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Math, testing::ValuesIn(all_isas()), setup_name);

TEST(ScalarMath, ExpMatches) {
  for (const double x : ladder(-707.9, 0.0371, 38180)) {
    EXPECT_NEAR(exp_of(x) / std::exp(x), 1.0, 1e-15) << x;
  }
  EXPECT_EQ(exp_of(0.0), 1.0);
  EXPECT_EQ(exp_of(-1e300), 0.0);
  EXPECT_EQ(exp_of(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_TRUE(std::isfinite(exp_of(1e300)));
  EXPECT_TRUE(std::isfinite(exp_of(NAN)));
}

TEST(ScalarMath, LogMatches) {
  for (const double x : powers(1e-300, 1.37, 4380)) {
    const double expected = std::log(x);
    EXPECT_NEAR(log_of(x), expected, 1e-15 * std::max(1.0, std::abs(expected))) << x;
  }
  for (const double x : ladder(0.5, 0.000917, 1630)) {
    EXPECT_NEAR(log_of(x), std::log(x), 4e-16 * std::abs(std::log(x)) + 1e-17) << x;
  }
  EXPECT_EQ(log_of(1.0), 0.0);
}

TEST(ScalarMath, Log1pMatches) {
  for (const double x : powers(1e-300, 1.093, 7760)) {
    EXPECT_NEAR(log1p_of(x) / std::log1p(x), 1.0, 1e-15) << x;
  }
  EXPECT_EQ(log1p_of(0.0), 0.0);
}

TEST(ScalarMath, SoftplusAndSigmoidHaveTheirTails) {
  for (const double x : ladder(-700.0, 0.613, 2280)) {
    const double expected = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    EXPECT_NEAR(softplus(x) / expected, 1.0, 2e-15) << x;
    EXPECT_NEAR(sigmoid(x) * (1 + std::exp(-x)), 1.0, 2e-15) << x;
  }
  EXPECT_EQ(softplus(1e300), 1e300);
  EXPECT_EQ(softplus(-1e300), 0.0);
  EXPECT_EQ(sigmoid(1e300), 1.0);
  EXPECT_EQ(sigmoid(-1e300), 0.0);
}

}  // namespace
}  // namespace runnel::cpu
