// The header of a safetensors file, and tensors in the data after it.
// Format: u64 little-endian header length, JSON header, data
// (https://github.com/huggingface/safetensors).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/bundle/mapped_file.h"
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

// The tensor, in place in `data`. INVALID_ARGUMENT if it is missing or does not have the shape
// `shape`. The message names `file`, the tensor, what was expected and what was found.
Result<Tensor> find_tensor(const StoredTensors& tensors, std::span<const std::byte> data,
                           std::string_view name, std::span<const int64_t> shape,
                           const std::string& file);

// Parses a header, which is followed by `data_bytes` bytes of data. It checks the JSON, the types,
// the shapes against the byte counts, and that the tensors lie within the data without overlaps or
// gaps. Errors are INVALID_ARGUMENT naming `file`, the tensor, what was expected and what was
// found.
Result<StoredTensors> parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                               const std::string& file);

}  // namespace runnel
