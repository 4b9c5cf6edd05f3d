// Numbers that the layers of several families compute from their tensors.
#include "models/layered_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

namespace runnel {
namespace {

using testing::ElementsAre;

TEST(LayeredNetwork, RatesAreFinite) {
  EXPECT_EQ(rate_of(0.0F), 1.0F);
  EXPECT_EQ(rate_of(-1000.0F), 0.0F);
  EXPECT_EQ(rate_of(2.0F), static_cast<float>(std::exp(2.0)));
  EXPECT_EQ(rate_of(88.75F), FLT_MAX) << "exp of it is beyond fp32";
  EXPECT_EQ(rate_of(1e4F), FLT_MAX) << "exp of it is beyond fp64";
}

TEST(LayeredNetwork, RepeatsAndTilesNumbersOfHeads) {
  const std::vector<float> numbers = {1.0F, 2.0F};
  EXPECT_THAT(repeated(numbers, 3), ElementsAre(1.0F, 1.0F, 1.0F, 2.0F, 2.0F, 2.0F));
  EXPECT_THAT(tiled(numbers, 2), ElementsAre(1.0F, 2.0F, 1.0F, 2.0F));
}

}  // namespace
}  // namespace runnel
