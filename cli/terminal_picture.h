// Draws a picture as text for a terminal that has colours.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"
#include "cli/image_sheet.h"

namespace runnel {

struct TerminalStyle {
  bool true_colour = false;  // 24 bits; false: the nearest colour of the palette of 256
  bool utf8 = false;  // a cell shows two pixels, one above the other; false: two cells show one
};

// The columns and rows that a picture needs.
TerminalSize size_on_terminal(const ImageShape& shape, const TerminalStyle& style);

// The row of the terminal that shows a byte of the picture.
int row_of_byte(const ImageShape& shape, int64_t byte, const TerminalStyle& style);

// One row of the terminal, without a line end. Pixels beyond the first `known` bytes of the picture
// have the terminal's default colours, and so has the text after the row.
std::string render_row(const Picture& picture, int64_t known, int row, const TerminalStyle& style);

}  // namespace runnel
