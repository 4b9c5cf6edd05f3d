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

// Whether `path` ends with kGgufEnding.
bool is_gguf(const std::string& path);

struct GgufHeader {
  // One object with a member for each key, such as "rwkv7.block_count". Strings are UTF-8, except
  // that strings in arrays (tokens) may hold any bytes. Floats may be NaN or infinite.
  Json metadata = Json::object();
  // Shapes are row-major: the last dimension here is the first one in the file.
  StoredTensors tensors;
  int64_t data_begin = 0;  // bytes from the start of the file
};

// Parses the header of a file. `file` holds all bytes of the file, and `name` is its name in
// errors. Every count and length is checked against gguf_bounds and against the rest of the file
// before memory is allocated for it. A tensor is accepted under three conditions:
// - Its type and shape are supported.
// - Its offset is the padded sum of the sizes of the tensors before it.
// - It ends within the file.
// An error is INVALID_ARGUMENT. Its message names the file, the key or tensor, the expected value
// and the value that was found.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file, const std::string& name);

// The code of a tensor's type in a GGUF file.
uint32_t gguf_type(StoredType type);

// The size of the smallest header: the word GGUF, the version, and the counts of tensors and keys.
inline constexpr int64_t kLeastGgufBytes = 24;

// Upper bounds on the contents of a header, except for kLeastAlignment.
namespace gguf_bounds {
inline constexpr int64_t kHeaderBytes = int64_t{64} << 20;
inline constexpr int64_t kPairs = 1 << 16;
inline constexpr int64_t kTensors = 1 << 16;
inline constexpr int64_t kKeyBytes = 65535;
inline constexpr int64_t kStringBytes = 1 << 20;
inline constexpr int64_t kTokenBytes = 1 << 16;  // of a string in an array
// Elements of all arrays together. As JSON in memory, an element takes 16 bytes if it is a number,
// and 64 bytes and its text if it is a string.
inline constexpr int64_t kElements = int64_t{4} << 20;
inline constexpr int64_t kNameBytes = 63;
inline constexpr int64_t kDimensions = 4;
inline constexpr int64_t kLeastAlignment = 8, kMostAlignment = 65536;
}  // namespace gguf_bounds

}  // namespace runnel
