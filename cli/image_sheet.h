// Draws several images of one shape on one sheet.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "models/spec.h"

namespace runnel {

// The bytes of a picture: rows from top to bottom. The channels of a pixel (1: grey, 3: RGB) are
// adjacent.
struct Picture {
  ImageShape shape;
  std::vector<uint8_t> bytes;  // shape.bytes() of them
};

struct SheetLayout {
  int columns = 0, rows = 0;  // cells; columns * rows >= images
  int scale = 0;              // pixels of the sheet per pixel of an image, in each direction
  int gap = 0;                // pixels between cells and around them
  int width = 0, height = 0;  // of the sheet, in pixels
  int left(int column, const ImageShape& image) const {
    return gap + column * (image.width * scale + gap);
  }
  int top(int row, const ImageShape& image) const {
    return gap + row * (image.height * scale + gap);
  }
};

// A near-square grid, with at least as many columns as rows. Small images are scaled up by a whole
// factor. One image alone has no gap around it. INVALID_ARGUMENT if the sheet would be larger than
// a PNG file may be (kMaxImageSide).
Result<SheetLayout> layout_sheet(int images, const ImageShape& shape);

// The sheet with `images` (shape.bytes() bytes each), in rows from left to right, on a grey
// background.
Picture draw_sheet(const SheetLayout& layout, const ImageShape& shape,
                   std::span<const std::vector<uint8_t>> images);

}  // namespace runnel
