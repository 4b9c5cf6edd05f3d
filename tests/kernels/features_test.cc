#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

struct Shape {
  FeatureMap map;
  int count, dk, heads;
};

// A feature map and its tensors.
struct Map {
  Map(const Shape& shape, bool normalize, Activation kernel = Activation::kRelu)
      : features{.map = shape.map,
                 .count = shape.count,
                 .temperature = 0.4F,
                 .smoothing = 0.7F,
                 .kernel = kernel,
                 .omega = {},
                 .sigma = {}},
        omega(shape.dk, features.projections()),
        sigma(shape.heads, shape.dk, 3) {
    omega.fill(random_floats(int64_t{shape.dk} * omega.cols(), 11));
    sigma.fill(random_floats(int64_t{shape.dk} * shape.heads, 12));
    features.omega = omega.view();
    if (normalize) features.sigma = sigma.view();
  }
  RandomFeatures features;
  Guarded omega, sigma;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const auto map : {FeatureMap::kFavor, FeatureMap::kFourier, FeatureMap::kSmoothedFourier,
                         FeatureMap::kGeneralized}) {
    for (const int count : {3, 16, 33, 70}) {
      for (const int dk : {1, 7, 32, 65, 130}) all.push_back({map, count, dk, 3});
    }
  }
  return all;
}

class Features : public KernelTest {
 protected:
  // Fills `x` with queries and keys, and computes their features into `out`.
  void run(Map& map, const Shape& shape, Guarded& x, Guarded& out) {
    x.fill(random_floats(int64_t{x.rows()} * x.cols(), 13));
    backend().features(x.view(), map.features, out.view());
    x.expect_guards("features: x");
    out.expect_guards("features: out");
    ASSERT_EQ(x.cols(), 2 * shape.heads * shape.dk);
  }

  void expect_matches(const Shape& shape, bool normalize, Activation kernel) {
    Map map(shape, normalize, kernel);
    const int size = map.features.size();
    Guarded x(3, 2 * shape.heads * shape.dk, 2);
    Guarded out(3, 2 * shape.heads * size, 5);
    run(map, shape, x, out);
    for (int input = 0; input < 3; ++input) {
      for (int b = 0; b < 2 * shape.heads; ++b) {
        const float* const from = x.row(input) + b * shape.dk;
        const float* const sigma = normalize ? map.sigma.row(b % shape.heads) : nullptr;
        const reference::Vector expected = reference::random_features(
            map.features, reference::Vector(from, from + shape.dk), map.omega.row(0), sigma);
        ASSERT_EQ(expected.size(), size);
        for (int i = 0; i < size; ++i) {
          // Angles and exponents are sums of dk products, each of them rounded.
          ASSERT_NEAR(out.at(input, b * size + i), expected[i],
                      3e-6 * (1 + std::abs(expected[i])) * (1 + std::sqrt(shape.dk)))
              << "map " << static_cast<int>(shape.map) << " count " << shape.count << " dk "
              << shape.dk << " block " << b << " feature " << i;
        }
      }
    }
  }
};

TEST_P(Features, MatchReferenceOnShapesThatBreak) {
  for (const Shape& shape : shapes()) {
    for (const bool normalize : {false, true}) {
      expect_matches(shape, normalize, Activation::kRelu);
    }
  }
}

TEST_P(Features, GeneralizedTakeOtherFunctions) {
  expect_matches({FeatureMap::kGeneralized, 33, 9, 2}, false, Activation::kGelu);
}

TEST(RandomFeatures, OddCountsLoseAFeatureButCountInTheScale) {
  const auto of = [](FeatureMap map, int count) {
    RandomFeatures features;
    features.map = map;
    features.count = count;
    return features;
  };
  EXPECT_EQ(of(FeatureMap::kFavor, 8).size(), 8);
  EXPECT_EQ(of(FeatureMap::kFavor, 9).size(), 8);
  EXPECT_EQ(of(FeatureMap::kFourier, 9).projections(), 4);
  EXPECT_EQ(of(FeatureMap::kSmoothedFourier, 9).size(), 9);
  EXPECT_EQ(of(FeatureMap::kSmoothedFourier, 8).size(), 7);
  EXPECT_EQ(of(FeatureMap::kGeneralized, 9).size(), 9);
  EXPECT_FLOAT_EQ(of(FeatureMap::kFourier, 9).constant(), std::sqrt(2.0F / 9));
  EXPECT_FLOAT_EQ(of(FeatureMap::kSmoothedFourier, 8).constant(), std::sqrt(2.0F / 7));
  EXPECT_FLOAT_EQ(of(FeatureMap::kFavor, 9).constant(), std::log(9.0F) / 2);
}

// The bits are the same in any batch and with any number of threads.
TEST_P(Features, BitsDoNotDependOnTheBatchOrOnThreads) {
  for (const auto map_kind : {FeatureMap::kFavor, FeatureMap::kSmoothedFourier}) {
    const Shape shape = {map_kind, 37, 33, 3};
    Map map(shape, true);
    const int size = map.features.size();
    Guarded x(50, 2 * shape.heads * shape.dk);
    Guarded together(50, 2 * shape.heads * size);
    Guarded apart(50, 2 * shape.heads * size);
    run(map, shape, x, together);
    const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
    for (int input = 0; input < 50; ++input) {
      single->features(x.view().slice(input, 1), map.features, apart.view().slice(input, 1));
    }
    EXPECT_TRUE(same_bits(together.values(), apart.values()));
  }
}

// The bits of a query or a key do not depend on the others of its input.
TEST_P(Features, BitsDoNotDependOnOtherQueriesAndKeys) {
  const Shape shape = {FeatureMap::kGeneralized, 175, 70, 3};
  Map map(shape, false);
  const int size = map.features.size();
  const int blocks = 2 * shape.heads;
  Guarded x(2, blocks * shape.dk);
  Guarded together(2, blocks * size);
  Guarded apart(2, blocks * size);
  run(map, shape, x, together);
  View from = x.view();
  View to = apart.view();
  from.cols = shape.dk;
  to.cols = size;
  for (int b = 0; b < blocks; ++b) {
    from.data = &x.at(0, b * shape.dk);
    to.data = &apart.at(0, b * size);
    backend().features(from, map.features, to);
  }
  EXPECT_TRUE(same_bits(together.values(), apart.values()));
}

TEST_P(Features, LargeInputsStayFinite) {
  for (const Shape& shape : shapes()) {
    if (shape.map == FeatureMap::kGeneralized) continue;
    for (const bool normalize : {false, true}) {
      Map map(shape, normalize);
      Guarded x(1, shape.dk);
      Guarded out(1, map.features.size());
      x.fill(std::vector<float>(shape.dk, 1e15F));
      backend().features(x.view(), map.features, out.view());
      for (const float y : out.values()) EXPECT_TRUE(std::isfinite(y));
      x.fill(std::vector<float>(shape.dk, 0.0F));
      backend().features(x.view(), map.features, out.view());
      for (const float y : out.values()) EXPECT_TRUE(std::isfinite(y));
    }
  }
}

// A projection by 1, so u equals x.
TEST_P(Features, SinesAndCosinesAreAccurate) {
  std::vector<float> x;
  for (float at = 1e-6F; at < 8192.0F; at *= 1.01F) {
    x.push_back(at);
    x.push_back(-at);
  }
  for (int n = 0; n < 2600; ++n) x.push_back(static_cast<float>(n * 1.5707963267948966));
  const int count = static_cast<int>(x.size());
  Guarded from(count, 1);
  Guarded out(count, 2);
  Guarded omega(1, 1);
  from.fill(x);
  omega.fill({1.0F});
  const RandomFeatures features = {.map = FeatureMap::kFourier,
                                   .count = 2,
                                   .temperature = 1.0F,
                                   .omega = omega.view(),
                                   .sigma = {}};
  backend().features(from.view(), features, out.view());
  for (int i = 0; i < count; ++i) {
    ASSERT_NEAR(out.at(i, 0), std::cos(static_cast<double>(x[i])), 2.5e-7) << x[i];
    ASSERT_NEAR(out.at(i, 1), std::sin(static_cast<double>(x[i])), 2.5e-7) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Features, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
