#include "server/openai/drawing.h"

#include <gtest/gtest.h>

namespace runnel {
namespace {

constexpr ImageShape kShape = {.height = 4, .width = 3, .channels = 1};

ValueRun run_of(int64_t position, std::vector<int32_t> values) {
  return {.position = position, .values = std::move(values)};
}

TEST(Drawing, EachCompleteRowIsTakenOnce) {
  const std::vector<int32_t> given = {250, 251, 252, 253};
  Drawing drawing(kShape, given);
  auto row = drawing.take_row();
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->row, 0);
  EXPECT_EQ(std::vector(row->bytes.begin(), row->bytes.end()),
            (std::vector<uint8_t>{250, 251, 252}));
  EXPECT_FALSE(drawing.take_row().has_value());
  drawing.add(run_of(4, {1}));
  EXPECT_FALSE(drawing.take_row().has_value());
  drawing.add(run_of(5, {2, 3, 4, 5, 6}));
  row = drawing.take_row();
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->row, 1);
  EXPECT_EQ(std::vector(row->bytes.begin(), row->bytes.end()), (std::vector<uint8_t>{253, 1, 2}));
  EXPECT_EQ(drawing.take_row()->row, 2);
  EXPECT_FALSE(drawing.take_row().has_value());
  drawing.add(run_of(10, {7, 8}));
  EXPECT_EQ(drawing.take_row()->row, 3);
  EXPECT_FALSE(drawing.take_row().has_value());
}

TEST(Drawing, PartialImagesAreEquallySpacedAndExcludeTheWhole) {
  for (const int partials : {0, 1, 3}) {
    Drawing drawing(kShape, {});
    std::vector<int> parts;
    for (int64_t at = 0; at < 12; ++at) {
      drawing.add(run_of(at, {1}));
      if (const auto part = drawing.take_partial(partials)) {
        EXPECT_EQ(at + 1, 12 * (*part + 1) / (partials + 1));
        parts.push_back(*part);
      }
    }
    ASSERT_EQ(std::ssize(parts), partials);
    for (int i = 0; i < partials; ++i) EXPECT_EQ(parts[i], i);
  }
}

TEST(Drawing, OfPartialImagesThatAreReadyTogetherOnlyTheLastIsTaken) {
  Drawing drawing(kShape, {});
  drawing.add(run_of(0, std::vector<int32_t>(9, 1)));
  EXPECT_EQ(drawing.take_partial(3), 2);
  EXPECT_EQ(drawing.take_partial(3), std::nullopt);
}

}  // namespace
}  // namespace runnel
