#include "cli/image_sheet.h"

#include <gmock/gmock.h>

#include "cli/png_file.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

constexpr ImageShape kDigit{.height = 28, .width = 28, .channels = 1};

TEST(ImageSheet, IsNearSquareAndScaled) {
  const auto sixteen = layout_sheet(16, kDigit);
  ASSERT_TRUE(sixteen.ok());
  EXPECT_EQ(sixteen->columns, 4);
  EXPECT_EQ(sixteen->rows, 4);
  EXPECT_EQ(sixteen->scale, 4);
  EXPECT_EQ(sixteen->width, 4 * 28 * 4 + 5 * sixteen->gap);
  EXPECT_EQ(sixteen->height, sixteen->width);
  const auto seven = layout_sheet(7, kDigit);
  EXPECT_EQ(seven->columns, 3);
  EXPECT_EQ(seven->rows, 3);
  const auto two = layout_sheet(2, kDigit);
  EXPECT_EQ(two->columns, 2);
  EXPECT_EQ(two->rows, 1);
}

TEST(ImageSheet, OneImageHasNoGap) {
  const auto one = layout_sheet(1, kDigit);
  EXPECT_EQ(one->gap, 0);
  EXPECT_EQ(one->width, 112);
}

TEST(ImageSheet, EveryCountHasRoom) {
  for (int count = 1; count <= 300; ++count) {
    const auto layout = layout_sheet(count, {.height = 5, .width = 9, .channels = 3});
    ASSERT_TRUE(layout.ok());
    EXPECT_GE(layout->columns * layout->rows, count);
    EXPECT_LT((layout->rows - 1) * layout->columns, count) << "an empty row";
    EXPECT_LE(layout->columns - layout->rows, 1);
  }
}

TEST(ImageSheet, LargeSheetsShrinkThenFail) {
  const auto many = layout_sheet(4096, {.height = 112, .width = 100, .channels = 1});
  ASSERT_TRUE(many.ok());
  EXPECT_LE(many->width, kMaxImageSide);
  const auto shrunk = layout_sheet(4096, {.height = 20, .width = 20, .channels = 1});
  ASSERT_TRUE(shrunk.ok());
  EXPECT_EQ(shrunk->scale, 5);
  const auto large = layout_sheet(16, {.height = 5000, .width = 5000, .channels = 3});
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(large.status().message(), testing::HasSubstr("16 images of 5000 x 5000"));
  EXPECT_THAT(large.status().message(), testing::HasSubstr("ask for fewer"));
}

// Compares each pixel with that of the image in its cell, or with the background.
void expect_drawn(int count, const ImageShape& shape) {
  const auto layout = layout_sheet(count, shape);
  ASSERT_TRUE(layout.ok());
  std::vector<std::vector<uint8_t>> images;
  for (int i = 0; i < count; ++i) images.push_back(random_bytes(shape.bytes(), 17 + i));
  const Picture sheet = draw_sheet(*layout, shape, images);
  ASSERT_EQ(sheet.shape.height, layout->height);
  ASSERT_EQ(static_cast<int64_t>(sheet.bytes.size()), sheet.shape.bytes());
  for (int y = 0; y < layout->height; ++y) {
    for (int x = 0; x < layout->width; ++x) {
      const int pitch_x = shape.width * layout->scale + layout->gap;
      const int pitch_y = shape.height * layout->scale + layout->gap;
      const int in_x = (x + pitch_x - layout->gap) % pitch_x;
      const int in_y = (y + pitch_y - layout->gap) % pitch_y;
      const int index = (x - layout->gap) / pitch_x + (y - layout->gap) / pitch_y * layout->columns;
      const bool inside = x >= layout->gap && y >= layout->gap &&
                          in_x < shape.width * layout->scale &&
                          in_y < shape.height * layout->scale && index < count;
      for (int c = 0; c < shape.channels; ++c) {
        const uint8_t found = sheet.bytes[(int64_t{y} * layout->width + x) * shape.channels + c];
        const int64_t at =
            (int64_t{in_y} / layout->scale * shape.width + in_x / layout->scale) * shape.channels +
            c;
        const uint8_t expected = inside ? images[index][at] : 0x60;
        ASSERT_EQ(found, expected) << x << " " << y << " of " << count;
      }
    }
  }
}

TEST(ImageSheet, DrawsEveryPixelInItsPlace) {
  expect_drawn(1, {.height = 1, .width = 1, .channels = 1});
  expect_drawn(5, {.height = 3, .width = 7, .channels = 3});
  expect_drawn(16, kDigit);
  expect_drawn(3, {.height = 130, .width = 40, .channels = 1});
  expect_drawn(10, {.height = 8, .width = 1, .channels = 3});
}

}  // namespace
}  // namespace runnel
