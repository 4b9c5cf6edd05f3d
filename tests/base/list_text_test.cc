#include "base/list_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SplitList, GivesThePartsWithoutTheSpacesAroundThem) {
  EXPECT_THAT(split_list("a"), ElementsAre("a"));
  EXPECT_THAT(split_list(" a b ,c,, /d/e"), ElementsAre("a b", "c", "/d/e"));
  for (const char* const none : {"", " ", ",", " , "}) EXPECT_THAT(split_list(none), IsEmpty());
}

}  // namespace
}  // namespace runnel
