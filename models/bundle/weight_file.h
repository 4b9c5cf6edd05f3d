// A file of weights, memory-mapped and checked before use: safetensors, or GGUF with the same names
// of tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/bundle/mapped_file.h"
#include "models/bundle/safetensors.h"

namespace runnel {

class WeightFile {
 public:
  // Maps the file, a GGUF file if its name ends so, with the errors of MappedFile::open() and of
  // parse_safetensors_header() or parse_gguf_header().
  static Result<WeightFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const StoredTensors& tensors() const { return tensors_; }

  // As read_tensor().
  Result<Tensor> read(std::string_view name, std::span<const int64_t> shape) const;

  // SHA-256 of the whole file, in hex. `on_piece` is told the bytes of each piece that is done.
  std::string digest(const std::function<void(int64_t bytes)>& on_piece = {}) const {
    return file_.digest(on_piece);
  }

 private:
  WeightFile() = default;
  static Result<WeightFile> open_safetensors(const std::string& path);
  static Result<WeightFile> open_gguf(const std::string& path);

  MappedFile file_;
  std::span<const std::byte> data_;  // of the file, after the header
  StoredTensors tensors_;
};

}  // namespace runnel
