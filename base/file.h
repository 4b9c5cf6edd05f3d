// Reads and writes files: only regular files, within bounds, and with errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace runnel {

// The owner, the group and the permission bits of a file.
struct FileAccess {
  uint32_t owner = 0, group = 0;
  int mode = 0;
};

// A file that is open for reading, and is known to be a regular file. So it is neither a device nor
// a pipe, on which reading could hang.
class RegularFile {
 public:
  // NOT_FOUND when there is no such file, INVALID_ARGUMENT when it cannot be opened or is not a
  // regular file.
  static Result<RegularFile> open(const std::string& path);

  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  ~RegularFile();

  int descriptor() const { return descriptor_; }
  // Transfers ownership of the descriptor: the caller must close it.
  int release();

  // The size when the file was opened.
  int64_t bytes() const { return bytes_; }

  // INVALID_ARGUMENT if the system does not report them.
  Result<FileAccess> access() const;
  // For files with secrets: INVALID_ARGUMENT if the mode lets anyone but the owner change the file,
  // or anyone but the owner and the group read it.
  Status check_private() const;

  // The first `count` bytes, or all if there are fewer. INVALID_ARGUMENT if they cannot be read.
  Result<std::string> read_head(int64_t count) const;
  // Reads bytes [at, at + to.size()). INVALID_ARGUMENT if they cannot be read or no longer exist.
  Status read_at(int64_t at, std::span<std::byte> to) const;

 private:
  RegularFile(const std::string& path, int descriptor);

  std::string name_;  // the path as messages show it
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

// The whole file. Errors as for RegularFile::open(), and INVALID_ARGUMENT when it has more than
// `at_most` bytes.
Result<std::string> read_file(const std::string& path, int64_t at_most);

// The first `count` bytes of a file, or all if there are fewer.
Result<std::string> read_head(const std::string& path, int64_t count);

// OK if replace_file() will probably succeed. Call it before a long computation, so that a mistake
// is found early.
Status check_writable(const std::string& path);

// Replaces the file atomically: readers see either the old bytes or the new ones. The file gets
// `mode`, without the bits that the process's umask removes. A device, a pipe or an open file of
// this process (/dev/stdout, /dev/fd/N) is written to instead, and keeps its mode.
Status replace_file(const std::string& path, std::string_view bytes, int mode = 0666);
// The same with this owner, group and mode. INVALID_ARGUMENT if the process may not set them.
Status replace_file(const std::string& path, std::string_view bytes, const FileAccess& access);

// Convert between text and bytes without a copy.
inline std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace runnel
