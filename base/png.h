// Pictures as PNG files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace runnel {

// Pixels from left to right, rows from top to bottom; `channels` bytes each, 1 (grey) or 3 (red
// green blue).
struct PngShape {
  int height = 0, width = 0, channels = 0;  // height and width: 1 to 1,000,000
};

// Bytes that the file has at most.
int64_t png_bytes(const PngShape& shape);

// The file of height * width * channels bytes. RESOURCE_EXHAUSTED where the library has no memory
// for it: about 300 KiB beside the file.
Result<std::vector<uint8_t>> encode_png(std::span<const uint8_t> pixels, const PngShape& shape);

}  // namespace runnel
