// Several images of one shape on one sheet: where each goes, and the picture itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "models/spec.h"

namespace runnel {

// Pixels, rows top to bottom, channels (1 grey, 3 red green blue) side by side.
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

// A near-square grid, wide rather than high; small images are scaled up by a whole factor. One
// image alone has no gap around it. INVALID_ARGUMENT when the sheet would be larger than a PNG file
// may be (kMaxImageSide).
Result<SheetLayout> layout_sheet(int images, const ImageShape& shape);

// The sheet with `images` (shape.bytes() bytes each) in reading order on a grey ground.
Picture draw_sheet(const SheetLayout& layout, const ImageShape& shape,
                   std::span<const std::vector<uint8_t>> images);

}  // namespace runnel
