#include "cli/terminal_picture.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace runnel {
namespace {

constexpr TerminalStyle kTrue{.true_colour = true, .utf8 = true};
constexpr TerminalStyle kPalette{.true_colour = false, .utf8 = true};
constexpr TerminalStyle kAscii{.true_colour = true, .utf8 = false};

Picture grey(int height, int width, std::vector<uint8_t> bytes) {
  return {{.height = height, .width = width, .channels = 1}, std::move(bytes)};
}

Picture one_pixel(uint8_t red, uint8_t green, uint8_t blue) {
  return {{.height = 1, .width = 1, .channels = 3}, {red, green, blue}};
}

TEST(TerminalPicture, TwoPixelsShareACell) {
  const Picture picture = grey(2, 2, {1, 2, 3, 4});
  EXPECT_EQ(render_row(picture, 4, 0, kTrue),
            "\x1b[0;38;2;1;1;1;48;2;3;3;3m\u2580\x1b[0;38;2;2;2;2;48;2;4;4;4m\u2580\x1b[0m");
}

TEST(TerminalPicture, ColoursAreRedGreenAndBlue) {
  EXPECT_EQ(render_row(one_pixel(250, 20, 3), 3, 0, kTrue), "\x1b[0;38;2;250;20;3m\u2580\x1b[0m");
}

TEST(TerminalPicture, WritesAColourOnce) {
  const Picture picture = grey(2, 3, {9, 9, 9, 7, 7, 7});
  EXPECT_EQ(render_row(picture, 6, 0, kTrue),
            "\x1b[0;38;2;9;9;9;48;2;7;7;7m\u2580\u2580\u2580\x1b[0m");
}

TEST(TerminalPicture, UnknownPixelsHaveTheColourOfTheTerminal) {
  const Picture picture = grey(4, 2, {1, 1, 1, 0, 0, 0, 0, 0});
  EXPECT_EQ(render_row(picture, 3, 0, kTrue),
            "\x1b[0;38;2;1;1;1;48;2;1;1;1m\u2580\x1b[0;38;2;1;1;1m\u2580\x1b[0m");
  EXPECT_EQ(render_row(picture, 3, 1, kTrue), "  \x1b[0m");
  // A pixel is drawn once all of its channels are known.
  EXPECT_EQ(render_row(one_pixel(1, 2, 3), 2, 0, kTrue), " \x1b[0m");
}

TEST(TerminalPicture, AnOddRowHasNoLowerHalf) {
  const Picture picture = grey(3, 1, {1, 2, 3});
  EXPECT_EQ(render_row(picture, 3, 1, kTrue), "\x1b[0;38;2;3;3;3m\u2580\x1b[0m");
}

TEST(TerminalPicture, WithoutHalfBlocksAPixelIsTwoSpaces) {
  const Picture picture = grey(2, 2, {1, 2, 3, 4});
  EXPECT_EQ(render_row(picture, 3, 0, kAscii), "\x1b[0;48;2;1;1;1m  \x1b[0;48;2;2;2;2m  \x1b[0m");
  EXPECT_EQ(render_row(picture, 3, 1, kAscii), "\x1b[0;48;2;3;3;3m  \x1b[0m  \x1b[0m");
}

TEST(TerminalPicture, UsesTheNearestColourOfThePalette) {
  const auto index = [](const Picture& picture) {
    const std::string row = render_row(picture, picture.shape.bytes(), 0, kPalette);
    return row.substr(0, row.find('m'));
  };
  // The greys: black, levels from 8 in steps of 10, white.
  for (const auto& [value, expected] : {std::pair{0, 16},
                                        {3, 16},
                                        {4, 232},
                                        {8, 232},
                                        {12, 232},
                                        {13, 233},
                                        {128, 244},
                                        {238, 255},
                                        {246, 255},
                                        {247, 231},
                                        {255, 231}}) {
    EXPECT_EQ(index(grey(1, 1, {static_cast<uint8_t>(value)})),
              "\x1b[0;38;5;" + std::to_string(expected))
        << value;
  }
  // The cube: levels 0, 95, 135, 175, 215, 255.
  EXPECT_EQ(index(one_pixel(255, 0, 0)), "\x1b[0;38;5;196");
  EXPECT_EQ(index(one_pixel(0, 47, 48)), "\x1b[0;38;5;" + std::to_string(16 + 1));
  EXPECT_EQ(index(one_pixel(100, 140, 250)),
            "\x1b[0;38;5;" + std::to_string(16 + 36 * 1 + 6 * 2 + 5));
}

TEST(TerminalPicture, KnowsItsSizeAndItsRows) {
  const ImageShape shape{.height = 5, .width = 3, .channels = 3};
  EXPECT_EQ(size_on_terminal(shape, kTrue).columns, 3);
  EXPECT_EQ(size_on_terminal(shape, kTrue).rows, 3);
  EXPECT_EQ(size_on_terminal(shape, kAscii).columns, 6);
  EXPECT_EQ(size_on_terminal(shape, kAscii).rows, 5);
  EXPECT_EQ(row_of_byte(shape, 17, kTrue), 0);
  EXPECT_EQ(row_of_byte(shape, 18, kTrue), 1);
  EXPECT_EQ(row_of_byte(shape, 18, kAscii), 2);
}

}  // namespace
}  // namespace runnel
