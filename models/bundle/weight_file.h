// A file of weights, memory-mapped and checked before use: safetensors, or GGUF with the same names
// of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "models/bundle/mapped_file.h"
#include "models/bundle/safetensors.h"

namespace runnel {

class WeightFile {
 public:
  // Maps the file. It is a GGUF file if its name ends with kGgufEnding. Errors are those of
  // MappedFile::open() and of parse_safetensors_header() or parse_gguf_header().
  static Result<WeightFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const RegularFile& file() const { return file_.file(); }
  const StoredTensors& tensors() const { return tensors_; }
  // GgufHeader::metadata, for a GGUF file.
  const Json& metadata() const { return metadata_; }

  // Like find_tensor().
  Result<Tensor> find(std::string_view name, std::span<const int64_t> shape) const;

  // Like MappedFile::release().
  void release(std::span<const std::byte> bytes) const { file_.release(bytes); }

 private:
  WeightFile() = default;
  static Result<WeightFile> open_safetensors(const std::string& path);
  static Result<WeightFile> open_gguf(const std::string& path);

  MappedFile file_;
  std::span<const std::byte> data_;  // of the file, after the header
  StoredTensors tensors_;
  Json metadata_;
};

}  // namespace runnel
