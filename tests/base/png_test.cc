#include "base/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

// The tests PngFile.* check that files decode to the same pixels.
TEST(Png, AFileIsNoLongerThanPngBytes) {
  for (const int channels : {1, 3}) {
    for (const auto& [height, width] : {std::pair{1, 1}, {1, 300}, {300, 1}, {257, 130}}) {
      const PngShape shape = {.height = height, .width = width, .channels = channels};
      const auto noise = random_bytes(int64_t{height} * width * channels, 5);
      const auto file = encode_png(noise, shape);
      ASSERT_TRUE(file.ok());
      EXPECT_LE(std::ssize(*file), png_bytes(shape));
      EXPECT_THAT(std::vector(file->begin(), file->begin() + 4),
                  ::testing::ElementsAre(0x89, 'P', 'N', 'G'));
    }
  }
}

}  // namespace
}  // namespace runnel
