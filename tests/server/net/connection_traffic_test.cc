#include "server/net/connection_traffic.h"

#include <gmock/gmock.h>

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Busiest, AreTheFewestAddressesThatSentNinetyPercent) {
  EXPECT_THAT(
      busiest({{3, {"a", 0}}, {4, {"b", 0}}, {5, {"c", 90000}}, {6, {"b", 0}}},
              {{3, {"a", 100000}}, {4, {"b", 70000}}, {5, {"c", 110000}}, {6, {"b", 70000}}}),
      ElementsAre("b", "a"));
}

TEST(Busiest, LeavesOutAddressesThatSentLittle) {
  EXPECT_THAT(busiest({{3, {"a", 1000}}}, {{3, {"a", 60000}}}), IsEmpty());
}

TEST(Busiest, CountsNewConnectionsAndIgnoresClosedOnes) {
  EXPECT_THAT(busiest({{3, {"a", 900000}}, {4, {"b", 0}}},
                      {{3, {"a", 0}}, {4, {"b", 2000}}, {5, {"c", 90000}}}),
              ElementsAre("c"));
}

}  // namespace
}  // namespace runnel
