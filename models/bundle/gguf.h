// The header of a GGUF file, version 2 or 3
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): keys with values, and the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "models/bundle/safetensors.h"

namespace runnel {

inline constexpr std::string_view kGgufEnding = ".gguf";

// Whether `path` names a GGUF file: by its ending.
bool is_gguf(const std::string& path);

struct GgufHeader {
  // One object: a member for each key, such as "rwkv7.block_count". Strings are UTF-8, but for
  // those in arrays (tokens), which may hold any bytes. Floats may be NaN or infinite.
  Json metadata = Json::object();
  // Shapes are row-major: the last dimension is the one that the file has first.
  StoredTensors tensors;
  int64_t data_begin = 0;  // bytes from the start of the file
};

// Parses the header of a whole file. Checked before memory is asked for: every count and length
// against gguf_bounds and what is left of the file. Checked of tensors: type, shape, an offset that
// is the padded sum of the sizes before it, an end within the file. Errors are INVALID_ARGUMENT
// naming `name`, the key or the tensor, what was expected and what was found.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file, const std::string& name);

// The format's number of a type.
uint32_t gguf_type(StoredType type);

// The version, and the numbers of tensors and keys.
inline constexpr int64_t kLeastGgufBytes = 24;

// What a header may hold.
namespace gguf_bounds {
inline constexpr int64_t kHeaderBytes = int64_t{64} << 20;
inline constexpr int64_t kPairs = 1 << 16;
inline constexpr int64_t kTensors = 1 << 16;
inline constexpr int64_t kKeyBytes = 65535;
inline constexpr int64_t kStringBytes = 1 << 20;
inline constexpr int64_t kTokenBytes = 1 << 16;  // of a string in an array
// Of all arrays. As JSON a string takes 64 bytes and its text, a number 16.
inline constexpr int64_t kElements = int64_t{4} << 20;
inline constexpr int64_t kNameBytes = 63;
inline constexpr int64_t kDimensions = 4;
inline constexpr int64_t kLeastAlignment = 8, kMostAlignment = 65536;
}  // namespace gguf_bounds

}  // namespace runnel
