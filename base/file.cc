#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

Result<RegularFile> RegularFile::open(const std::string& path) {
  // O_NONBLOCK: open() would wait for the writer of a named pipe.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int error = errno;
  RegularFile file(path, descriptor);
  if (descriptor < 0) {
    const Code code =
        error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kInvalidArgument;
    return Status(code, file.name_ + ": cannot be opened: " + reason(error));
  }
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    return invalid_argument(file.name_ + ": cannot be examined: " + reason(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument(file.name_ + ": not a regular file; expected a file, found a " +
                            (S_ISDIR(info.st_mode) ? "directory" : "pipe, socket or device"));
  }
  file.bytes_ = info.st_size;
  return file;
}

RegularFile::RegularFile(const std::string& path, int descriptor)
    : name_(printable(path, 400)), descriptor_(descriptor) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : name_(std::move(other.name_)), descriptor_(other.release()), bytes_(other.bytes_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int RegularFile::release() { return std::exchange(descriptor_, -1); }

Result<std::string> RegularFile::read_head(int64_t count) const {
  std::string text;
  // A megabyte at a time: memory follows the bytes that are there, not `count`.
  while (std::ssize(text) < count) {
    const size_t done = text.size();
    text.resize(std::min<int64_t>(count, std::ssize(text) + (1 << 20)));
    const ssize_t got =
        ::pread(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    const int error = errno;
    text.resize(done + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (got < 0 && error != EINTR) {
      return invalid_argument(name_ + ": cannot be read: " + reason(error));
    }
  }
  return text;
}

Result<std::string> read_file(const std::string& path, int64_t at_most) {
  Result<std::string> text = read_head(path, at_most + 1);
  if (text.ok() && std::ssize(*text) > at_most) {
    return invalid_argument(printable(path, 400) + ": expected at most " + std::to_string(at_most) +
                            " bytes, found more");
  }
  return text;
}

Result<std::string> read_head(const std::string& path, int64_t count) {
  const Result<RegularFile> file = RegularFile::open(path);
  if (!file.ok()) return file.status();
  return file->read_head(count);
}

Status check_writable(const std::string& path) {
  if (path.empty()) return invalid_argument("the name of the file to write is empty");
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return invalid_argument(quote(path, 400) + " is a directory: name a file in it");
  }
  const fs::path folder = folder_of(path);
  if (!fs::is_directory(folder, error)) {
    return invalid_argument("there is no directory " + quote(folder.string(), 400) +
                            " to write into: make it first");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return invalid_argument("cannot write into " + quote(folder.string(), 400) + ": " +
                            reason(errno) + "; name another place");
  }
  return {};
}

Status replace_file(const std::string& path, std::string_view bytes, int mode) {
  if (Status status = check_writable(path); !status.ok()) return status;
  std::error_code error;
  const bool replaced = !fs::exists(path, error) || fs::is_regular_file(path, error);
  // A device or a pipe is written to, never replaced.
  const std::string part = !replaced ? path : path + ".part" + std::to_string(getpid());
  const auto failed = [&](const std::string& why) {
    std::error_code ignored;
    if (replaced) fs::remove(part, ignored);
    return invalid_argument("cannot write " + quote(path, 400) + ": " + why);
  };
  if (replaced) fs::remove(part, error);
  const int made = ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode);
  if (made < 0) return failed(reason(errno));
  ::close(made);
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) return failed(reason(errno));
  }
  if (replaced) fs::rename(part, path, error);
  if (replaced && error) return failed(error.message());
  return {};
}

}  // namespace runnel
