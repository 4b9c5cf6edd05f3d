#include "cli/image_sheet.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "cli/png_file.h"

namespace runnel {
namespace {

constexpr int kReadableSide = 112;  // images are scaled up to about this many pixels
constexpr int kMaxScale = 16;
constexpr int kGap = 2;
constexpr uint8_t kGround = 0x60;

int64_t side(int cells, int pixels, int scale, int gap) {
  return int64_t{cells} * (int64_t{pixels} * scale + gap) + gap;
}

// Copies one row of an image, each pixel `scale` times.
void stretch_row(const uint8_t* from, int pixels, int channels, int scale, uint8_t* to) {
  for (int x = 0; x < pixels; ++x) {
    for (int copy = 0; copy < scale; ++copy) {
      std::memcpy(to, from + int64_t{x} * channels, channels);
      to += channels;
    }
  }
}

}  // namespace

Result<SheetLayout> layout_sheet(int images, const ImageShape& shape) {
  if (images < 1 || shape.height < 1 || shape.width < 1) {
    return invalid_argument("a sheet needs at least one image of at least one pixel");
  }
  SheetLayout layout;
  layout.columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(images))));
  layout.rows = (images + layout.columns - 1) / layout.columns;
  layout.gap = images == 1 ? 0 : kGap;
  layout.scale = std::clamp(kReadableSide / std::max(shape.height, shape.width), 1, kMaxScale);
  const auto fits = [&] {
    return side(layout.columns, shape.width, layout.scale, layout.gap) <= kMaxImageSide &&
           side(layout.rows, shape.height, layout.scale, layout.gap) <= kMaxImageSide;
  };
  while (layout.scale > 1 && !fits()) --layout.scale;
  const int64_t width = side(layout.columns, shape.width, layout.scale, layout.gap);
  const int64_t height = side(layout.rows, shape.height, layout.scale, layout.gap);
  if (!fits() || width * height > kMaxImagePixels) {
    return invalid_argument(
        "a sheet of " + std::to_string(images) + " images of " + std::to_string(shape.height) +
        " x " + std::to_string(shape.width) + " would be " + std::to_string(height) + " x " +
        std::to_string(width) + " pixels; a side may have " + std::to_string(kMaxImageSide) +
        " and the whole " + std::to_string(kMaxImagePixels) + ": ask for fewer images");
  }
  layout.width = static_cast<int>(width);
  layout.height = static_cast<int>(height);
  return layout;
}

Picture draw_sheet(const SheetLayout& layout, const ImageShape& shape,
                   std::span<const std::vector<uint8_t>> images) {
  Picture sheet;
  sheet.shape = {layout.height, layout.width, shape.channels};
  sheet.bytes.assign(sheet.shape.bytes(), kGround);
  const int64_t pitch = int64_t{layout.width} * shape.channels;
  const int64_t image_pitch = int64_t{shape.width} * shape.channels;
  for (size_t index = 0; index < images.size(); ++index) {
    const int column = static_cast<int>(index) % layout.columns;
    const int row = static_cast<int>(index) / layout.columns;
    for (int y = 0; y < shape.height; ++y) {
      uint8_t* first = sheet.bytes.data() +
                       (layout.top(row, shape) + int64_t{y} * layout.scale) * pitch +
                       int64_t{layout.left(column, shape)} * shape.channels;
      stretch_row(images[index].data() + y * image_pitch, shape.width, shape.channels, layout.scale,
                  first);
      for (int copy = 1; copy < layout.scale; ++copy) {
        std::memcpy(first + copy * pitch, first, image_pitch * layout.scale);
      }
    }
  }
  return sheet;
}

}  // namespace runnel
