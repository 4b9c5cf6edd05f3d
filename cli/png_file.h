// PNG files of 8 bits a channel, grey or red green blue, within bounds. Files come from anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/image_sheet.h"
#include "client/model_choice.h"

namespace runnel {

inline constexpr int64_t kMaxPngFileBytes = int64_t{1} << 28;

// True when `bytes` begin as a PNG file does.
bool looks_like_png(std::span<const uint8_t> bytes);

// Decodes a file's bytes into an image of exactly `shape`. Grey serves a shape of 3 channels, and
// colour one of 1 where its channels are equal everywhere. INVALID_ARGUMENT, naming `file`,
// expected and found, for another size, 16 bits a channel, transparency, or a damaged file.
Result<Picture> decode_png(std::span<const uint8_t> bytes, const ImageShape& shape,
                           const std::string& file);

// The picture as the bytes of a PNG file. INVALID_ARGUMENT beyond the limits above.
Result<std::vector<uint8_t>> encode_png(const Picture& picture);

}  // namespace runnel
