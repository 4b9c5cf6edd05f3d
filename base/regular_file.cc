#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace runnel {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

Result<RegularFile> RegularFile::open(const std::string& path) {
  // O_NONBLOCK: a named pipe without a writer must not hold us up.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return not_found(path + ": cannot be opened: " + reason(errno));
  RegularFile file(path, descriptor);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    return not_found(path + ": cannot be examined: " + reason(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument(path + ": not a regular file; expected a file, found a " +
                            (S_ISDIR(info.st_mode) ? "directory" : "pipe, socket or device"));
  }
  file.bytes_ = info.st_size;
  return file;
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> RegularFile::read_all(int64_t most) const {
  if (bytes_ > most) {
    return invalid_argument(path_ + ": " + std::to_string(bytes_) + " bytes; expected at most " +
                            std::to_string(most));
  }
  std::string text(static_cast<size_t>(bytes_), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got =
        ::pread(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return invalid_argument(path_ + ": cannot be read: " + reason(errno));
    if (got == 0) {
      return invalid_argument(path_ + ": ends after " + std::to_string(done) + " bytes; expected " +
                              std::to_string(bytes_) + "; was it being written?");
    }
    done += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace runnel
