#include "cli/terminal_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace runnel {
namespace {

struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

using Pixel = std::optional<Colour>;  // empty: not known yet

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kUpperHalf = "\u2580";
constexpr const char* kLowerHalf = "\u2584";

Pixel pixel_at(const Picture& picture, int64_t known, int x, int y) {
  const ImageShape& shape = picture.shape;
  if (y >= shape.height) return {};
  const int64_t first = (int64_t{y} * shape.width + x) * shape.channels;
  if (first + shape.channels > known) return {};
  const uint8_t* bytes = picture.bytes.data() + first;
  return shape.channels == 3 ? Colour{bytes[0], bytes[1], bytes[2]}
                             : Colour{bytes[0], bytes[0], bytes[0]};
}

// The nearest colour of the usual 256-colour palette: 16 to 231 are a cube of six levels per side,
// 232 to 255 are greys from 8 on in steps of 10.
int palette_index(const Colour& colour) {
  if (colour.red == colour.green && colour.green == colour.blue) {
    if (colour.red < 4) return 16;
    if (colour.red > 246) return 231;
    return 232 + std::clamp((colour.red - 3) / 10, 0, 23);
  }
  constexpr std::array<int, 6> kLevels = {0, 95, 135, 175, 215, 255};
  const auto level = [&](uint8_t value) {
    const auto nearer = [&](int a, int b) { return std::abs(a - value) < std::abs(b - value); };
    return static_cast<int>(std::ranges::min_element(kLevels, nearer) - kLevels.begin());
  };
  return 16 + 36 * level(colour.red) + 6 * level(colour.green) + level(colour.blue);
}

// The parameters of an escape that sets a colour. `ground` is 38 for the letter and 48 for the
// background.
std::string select(int ground, const Colour& colour, bool true_colour) {
  const std::string start = std::to_string(ground);
  if (!true_colour) return start + ";5;" + std::to_string(palette_index(colour));
  return start + ";2;" + std::to_string(colour.red) + ";" + std::to_string(colour.green) + ";" +
         std::to_string(colour.blue);
}

// Writes cells, with an escape only where the colours change.
class CellRow {
 public:
  explicit CellRow(bool true_colour) : true_colour_(true_colour) {}

  void put(const char* text, const Pixel& letter, const Pixel& behind) {
    if (std::pair(letter, behind) != set_) {
      set_ = {letter, behind};
      text_ += "\x1b[0";
      if (letter) text_ += ";" + select(38, *letter, true_colour_);
      if (behind) text_ += ";" + select(48, *behind, true_colour_);
      text_ += "m";
    }
    text_ += text;
  }

  std::string finish() { return std::move(text_) + kReset; }

 private:
  const bool true_colour_;
  std::pair<Pixel, Pixel> set_;
  std::string text_;
};

}  // namespace

TerminalSize size_on_terminal(const ImageShape& shape, const TerminalStyle& style) {
  if (style.utf8) return {.columns = shape.width, .rows = (shape.height + 1) / 2};
  return {.columns = 2 * shape.width, .rows = shape.height};
}

int row_of_byte(const ImageShape& shape, int64_t byte, const TerminalStyle& style) {
  const auto line = static_cast<int>(byte / (int64_t{shape.width} * shape.channels));
  return style.utf8 ? line / 2 : line;
}

std::string render_row(const Picture& picture, int64_t known, int row, const TerminalStyle& style) {
  CellRow out(style.true_colour);
  for (int x = 0; x < picture.shape.width; ++x) {
    if (!style.utf8) {
      out.put("  ", {}, pixel_at(picture, known, x, row));
      continue;
    }
    const Pixel upper = pixel_at(picture, known, x, 2 * row);
    const Pixel lower = pixel_at(picture, known, x, 2 * row + 1);
    if (upper) {
      out.put(kUpperHalf, upper, lower);
    } else {
      out.put(lower ? kLowerHalf : " ", lower, {});
    }
  }
  return out.finish();
}

}  // namespace runnel
