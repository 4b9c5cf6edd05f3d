// A picture as text for a terminal that has colours.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"
#include "cli/image_sheet.h"

namespace runnel {

struct TerminalStyle {
  bool true_colour = false;  // 24 bits; else the nearest of the palette of 256
  bool utf8 = false;  // two pixels in one cell, one above the other; else a pixel in two cells
};

// The columns and rows that a picture takes.
TerminalSize size_on_terminal(const ImageShape& shape, const TerminalStyle& style);

// The row of the terminal that shows a byte of the picture.
int row_of_byte(const ImageShape& shape, int64_t byte, const TerminalStyle& style);

// One row of the terminal, without a line end. It leaves the terminal's own colours behind it, and
// shows them where a pixel is not among the first `known` bytes of the picture.
std::string render_row(const Picture& picture, int64_t known, int row, const TerminalStyle& style);

}  // namespace runnel
