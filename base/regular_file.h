// A file opened for reading that is known to be a regular one: no pipe to hang on, no device.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace runnel {

class RegularFile {
 public:
  // NOT_FOUND when the file cannot be opened, INVALID_ARGUMENT when it is no regular file.
  static Result<RegularFile> open(const std::string& path);

  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  ~RegularFile();

  int descriptor() const { return descriptor_; }
  int64_t bytes() const { return bytes_; }

  // The whole file. INVALID_ARGUMENT when it is longer than `most` bytes or cannot be read.
  Result<std::string> read_all(int64_t most) const;

 private:
  RegularFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace runnel
