// A file of weights, mapped into memory read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "models/bundle/tensor.h"

namespace runnel {

class MappedFile {
 public:
  // NOT_FOUND if the file cannot be opened. INVALID_ARGUMENT if it is not a regular file or is
  // shorter than `least` bytes; `what` names these bytes in the message. RESOURCE_EXHAUSTED if it
  // cannot be mapped. The file must not be truncated while it is mapped: to replace a file, rename
  // another one over it.
  static Result<MappedFile> open(const std::string& path, int64_t least, const char* what);

  MappedFile() = default;
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // The mapped file, even if another file has its path by now.
  const RegularFile& file() const { return *file_; }

  // Removes the pages that hold `bytes` from this process's memory until they are read again. Does
  // nothing if the bytes are not in this mapping.
  void release(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  std::optional<RegularFile> file_;  // none: the object is not open
  std::span<const std::byte> bytes_;
};

// INVALID_ARGUMENT if an element is a NaN or an infinity. The message names the file and the
// tensor.
Status check_finite(const Tensor& tensor, std::string_view name, const std::string& file);

// "FILE: tensor 'NAME': WHAT", as INVALID_ARGUMENT.
Status tensor_fault(const std::string& file, std::string_view tensor, const std::string& what);

}  // namespace runnel
