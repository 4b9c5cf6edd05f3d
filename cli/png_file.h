// Reads and writes PNG files, grey or RGB with 8 bits a channel, up to the limits below. The files
// may be untrusted.
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

// True if `bytes` begin like a PNG file.
bool looks_like_png(std::span<const uint8_t> bytes);

// Decodes a file's bytes into an image of exactly `shape`. A grey file is accepted for 3 channels,
// and a colour file for 1 channel if its channels are equal everywhere. INVALID_ARGUMENT for
// another size, 16 bits a channel, transparency, or a damaged file. The message names `file`, what
// was expected and what was found.
Result<Picture> decode_png(std::span<const uint8_t> bytes, const ImageShape& shape,
                           const std::string& file);

// Encodes the picture as a PNG file. INVALID_ARGUMENT if it is larger than kMaxImageSide or
// kMaxImagePixels.
Result<std::vector<uint8_t>> encode_png(const Picture& picture);

}  // namespace runnel
