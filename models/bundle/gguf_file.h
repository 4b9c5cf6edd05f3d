// A GGUF file, memory-mapped and checked before use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "models/bundle/gguf.h"
#include "models/bundle/mapped_file.h"
#include "models/bundle/weight_files.h"

namespace runnel {

inline constexpr std::string_view kGgufEnding = ".gguf";

// Whether `path` names a GGUF file: by its ending.
bool is_gguf(const std::string& path);

class GgufFile final : public TensorMemory {
 public:
  // Maps the file, with the errors of MappedFile::open() and of parse_gguf_header().
  static Result<std::shared_ptr<const GgufFile>> open(const std::string& path,
                                                      LoadProgress progress = {});

  const std::string& path() const { return file_.path(); }
  const Json& metadata() const { return header_.metadata; }
  const StoredTensors& tensors() const { return header_.tensors; }

  // As read_tensor().
  Result<Tensor> read(std::string_view name, std::span<const int64_t> shape) const;
  void release(std::span<const std::byte> bytes) const override;

  // SHA-256 of the whole file, in hex.
  std::string digest() const;

 private:
  GgufFile() = default;
  void count(int64_t bytes) const;

  MappedFile file_;
  GgufHeader header_;
  LoadProgress progress_;
  mutable int64_t done_ = 0;  // bytes that were checked, hashed or packed
};

}  // namespace runnel
