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
  // NOT_FOUND when the file cannot be opened, INVALID_ARGUMENT when it is no regular file or
  // shorter than `least` bytes, of which the message says that they are `what`; RESOURCE_EXHAUSTED
  // when it cannot be mapped. The file must not be cut short while it is mapped: replace a file by
  // renaming another one over it.
  static Result<MappedFile> open(const std::string& path, int64_t least, const char* what);

  MappedFile() = default;
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // The file that is mapped, also if its path names another one by now.
  const RegularFile& file() const { return *file_; }

  // Takes the pages of its bytes out of this process's memory until somebody reads them. Others'
  // bytes stay.
  void release(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  std::optional<RegularFile> file_;  // none of an object that is not open
  std::span<const std::byte> bytes_;
};

// INVALID_ARGUMENT, naming file and tensor, when an element is a NaN or an infinity.
Status check_finite(const Tensor& tensor, std::string_view name, const std::string& file);

// "FILE: tensor 'NAME': WHAT", as INVALID_ARGUMENT.
Status tensor_fault(const std::string& file, std::string_view tensor, const std::string& what);

}  // namespace runnel
