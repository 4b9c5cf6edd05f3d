#include "cli/png_file.h"

#include <gmock/gmock.h>
#include <png.h>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::HasSubstr;

Picture random_picture(int height, int width, int channels, uint32_t seed) {
  const ImageShape shape{.height = height, .width = width, .channels = channels};
  return {shape, random_bytes(shape.bytes(), seed)};
}

// Makes a PNG file in any format that libpng writes.
std::vector<uint8_t> write_as(uint32_t format, int height, int width, const void* pixels,
                              const void* colours = nullptr, uint32_t colour_count = 0) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = height;
  image.width = width;
  image.format = format;
  image.colormap_entries = colour_count;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image) + 4096;
  std::vector<uint8_t> bytes(size);
  EXPECT_NE(png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, colours), 0)
      << image.message;
  bytes.resize(size);
  return bytes;
}

std::string error_of(std::span<const uint8_t> bytes, const ImageShape& shape) {
  const auto picture = decode_png(bytes, shape, "'a.png'");
  return picture.ok() ? "" : picture.status().message();
}

TEST(PngFile, RoundTripsGreyAndColour) {
  for (const int channels : {1, 3}) {
    for (const auto& [height, width] : {std::pair{1, 1}, {28, 28}, {3, 130}, {257, 2}}) {
      const Picture picture = random_picture(height, width, channels, height + width);
      const auto bytes = encode_png(picture);
      ASSERT_TRUE(bytes.ok());
      EXPECT_TRUE(looks_like_png(*bytes));
      const auto back = decode_png(*bytes, picture.shape, "'a.png'");
      ASSERT_TRUE(back.ok()) << back.status().message();
      EXPECT_EQ(back->bytes, picture.bytes);
    }
  }
}

TEST(PngFile, ConvertsBetweenGreyAndColourWithEqualChannels) {
  const Picture grey = random_picture(6, 5, 1, 3);
  const auto back = decode_png(*encode_png(grey), {.height = 6, .width = 5, .channels = 3}, "");
  ASSERT_TRUE(back.ok());
  for (size_t i = 0; i < back->bytes.size(); ++i) EXPECT_EQ(back->bytes[i], grey.bytes[i / 3]);
  const auto again = decode_png(*encode_png(*back), grey.shape, "");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->bytes, grey.bytes);
}

TEST(PngFile, RefusesImagesOfAnotherShapeThanTheModelTakes) {
  const ImageShape shape{.height = 4, .width = 5, .channels = 1};
  EXPECT_EQ(error_of(*encode_png(random_picture(5, 4, 1, 1)), shape),
            "'a.png' is 5 x 4 pixels (height x width); the model takes 4 x 5: scale or crop it to "
            "that size");
  Picture colour = random_picture(4, 5, 1, 1);
  std::vector<uint8_t> bytes(60, 7);
  bytes[3 * 8 + 1] = 8;
  colour = {{.height = 4, .width = 5, .channels = 3}, bytes};
  EXPECT_EQ(
      error_of(*encode_png(colour), shape),
      "'a.png' is in colour (row 1, column 3); the model takes grey images: convert it to grey");
  const std::vector<uint16_t> wide(20, 1000);
  EXPECT_THAT(error_of(write_as(PNG_FORMAT_LINEAR_Y, 4, 5, wide.data()), shape),
              HasSubstr("16 bits a channel"));
  const std::vector<uint8_t> clear(40, 100);
  EXPECT_THAT(error_of(write_as(PNG_FORMAT_GA, 4, 5, clear.data()), shape),
              HasSubstr("transparent"));
  EXPECT_THAT(error_of(random_bytes(100, 1), shape), HasSubstr("is not a PNG file"));
  EXPECT_THAT(error_of({}, shape), HasSubstr("is not a PNG file"));
}

TEST(PngFile, ReadsPalettes) {
  const std::vector<uint8_t> colours = {10, 10, 10, 200, 200, 200};
  const std::vector<uint8_t> pixels = {0, 1, 1, 0, 1, 0};
  const auto file = write_as(PNG_FORMAT_RGB_COLORMAP, 2, 3, pixels.data(), colours.data(), 2);
  const auto picture = decode_png(file, {.height = 2, .width = 3, .channels = 1}, "'p.png'");
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_THAT(picture->bytes, testing::ElementsAre(10, 200, 200, 10, 200, 10));
}

TEST(PngFile, EveryCutFileIsRefused) {
  const Picture picture = random_picture(9, 11, 1, 5);
  const auto bytes = encode_png(picture);
  // The last 12 bytes only mark the end.
  for (size_t length = 0; length + 12 < bytes->size(); ++length) {
    EXPECT_NE(error_of(std::span(*bytes).first(length), picture.shape), "") << length;
  }
}

TEST(PngFile, DamagedFilesAreRefusedOrRead) {
  const Picture picture = random_picture(9, 11, 3, 6);
  const auto bytes = encode_png(picture);
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<uint8_t> damaged = *bytes;
    for (int i = 0; i < 1 + trial % 3; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1 + random() % 255);
    }
    const auto result = decode_png(damaged, picture.shape, "'a.png'");
    if (!result.ok()) ++refused;
    if (result.ok()) {
      EXPECT_EQ(static_cast<int64_t>(result->bytes.size()), picture.shape.bytes());
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(PngFile, RefusesToWriteImagesThatAreTooLarge) {
  EXPECT_FALSE(encode_png({{.height = 1, .width = kMaxImageSide + 1, .channels = 1}, {}}).ok());
  EXPECT_FALSE(encode_png({{.height = 0, .width = 1, .channels = 1}, {}}).ok());
}

}  // namespace
}  // namespace runnel
