// Encodes pictures as PNG files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace runnel {

// The order of the bytes: rows from top to bottom, pixels from left to right, and `channels` bytes
// for each pixel, 1 (grey) or 3 (red green blue).
struct PngShape {
  int height = 0, width = 0, channels = 0;  // height and width: 1 to 1,000,000
};

// An upper bound on the file's size in bytes.
int64_t png_bytes(const PngShape& shape);

// Encodes height * width * channels bytes of pixels. RESOURCE_EXHAUSTED if the library cannot
// allocate memory: about 300 KiB in addition to the file.
Result<std::vector<uint8_t>> encode_png(std::span<const uint8_t> pixels, const PngShape& shape);

}  // namespace runnel
