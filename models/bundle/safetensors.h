// A safetensors file, memory-mapped and checked before use.
// Format: u64 little-endian header length, JSON header, data
// (https://github.com/huggingface/safetensors).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/bundle/tensor.h"

namespace runnel {

struct StoredTensor {
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes from the start of the data

  // The product of the shape; 1 for a scalar.
  int64_t elements() const;
};

// By name.
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// Parses a header; `data_bytes` is how much data follows it. Checked: JSON, types, shapes against
// byte counts, offsets inside the data, no overlap, no hole. Errors are INVALID_ARGUMENT naming
// `file`, the tensor, what was expected and what was found.
Result<StoredTensors> parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                               const std::string& file);

class SafetensorsFile {
 public:
  // Maps the file read-only. NOT_FOUND when it cannot be opened, INVALID_ARGUMENT when it is
  // malformed, RESOURCE_EXHAUSTED when it cannot be mapped. The file must not be cut short while it
  // is mapped: replace a file by renaming another one over it.
  static Result<SafetensorsFile> open(const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const StoredTensors& tensors() const { return tensors_; }

  // The tensor where it lies in the mapping. INVALID_ARGUMENT when it is missing, has another shape
  // than `shape`, or holds a NaN or an infinity; the message names file, tensor, expected and
  // found.
  Result<Tensor> read(std::string_view name, std::span<const int64_t> shape) const;

  // Takes the pages of a mapped tensor out of this process's memory until somebody reads them.
  static void release(std::span<const std::byte> bytes);

  // SHA-256 of the whole file, in hex. `on_piece` is told the bytes of each piece that is done.
  std::string digest(const std::function<void(int64_t bytes)>& on_piece = {}) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  const std::byte* map_ = nullptr;
  int64_t map_bytes_ = 0;
  int64_t data_begin_ = 0;
  StoredTensors tensors_;
};

}  // namespace runnel
