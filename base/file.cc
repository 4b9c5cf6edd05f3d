#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <random>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// The number N if the path leads to /proc/self/fd/N, as /dev/stdout and /dev/fd/N do, and this is a
// regular file; otherwise -1.
int own_descriptor(fs::path path) {
  constexpr int kMostLinks = 8;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return -1;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  for (int i = 0; i < kMostLinks && !error; ++i) {
    const fs::path folder = folder_of(path);
    if (fs::canonical(folder, error) == own && !error) {
      const std::string name = path.filename();
      int number = -1;
      std::from_chars(name.data(), name.data() + name.size(), number);
      return number;
    }
    path = folder / fs::read_symlink(path, error);
  }
  return -1;
}

std::string reason(int error) { return std::generic_category().message(error); }

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
    if (done < 0 && errno != EINTR) return false;
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(done, 0)));
  }
  return true;
}

// The steps between writing the last byte of a file and closing it. False: a step failed, and errno
// says why.
using Finish = std::function<bool(int descriptor)>;

// Returns 0, or the errno of the step that failed.
int write_and_close(int descriptor, std::string_view bytes, const Finish& finish) {
  const bool written = write_all(descriptor, bytes) && finish(descriptor);
  const int error = errno;
  if (::close(descriptor) != 0 && written) return errno;
  return written ? 0 : error;
}

// Writes a new file next to `path` and renames it to `path`. Others may be able to write into the
// folder, so nobody can guess the new file's name, and open() fails if the name is in use. A
// device, a pipe or an open file of this process is written to directly, never replaced.
Status write_in_place(const std::string& path, std::string_view bytes, int mode,
                      const Finish& finish) {
  if (Status status = check_writable(path); !status.ok()) return status;
  std::error_code ignored;
  const int own = own_descriptor(path);
  const bool replaced =
      own < 0 && (!fs::exists(path, ignored) || fs::is_regular_file(path, ignored));
  const std::string part =
      !replaced ? path : path + ".part" + std::to_string(std::random_device()());
  const int flags = replaced ? O_EXCL | O_NOFOLLOW : O_TRUNC;
  const int made = own >= 0 ? ::fcntl(own, F_DUPFD_CLOEXEC, 0)
                            : ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode);
  int error = made < 0 ? errno : write_and_close(made, bytes, finish);
  if (error == 0 && replaced && ::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  if (replaced && made >= 0) fs::remove(part, ignored);
  return invalid_argument("cannot write " + quote(path, 400) + ": " + reason(error));
}

}  // namespace

Result<RegularFile> RegularFile::open(const std::string& path) {
  // Without O_NONBLOCK, open() of a named pipe would wait for a writer.
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

Result<FileAccess> RegularFile::access() const {
  struct stat info = {};
  if (::fstat(descriptor_, &info) != 0) {
    return invalid_argument(name_ + ": cannot be examined: " + reason(errno));
  }
  return FileAccess{info.st_uid, info.st_gid, static_cast<int>(info.st_mode & 07777)};
}

Status RegularFile::check_private() const {
  constexpr int kForbidden = 0027;  // write by the group, any access by others
  const Result<FileAccess> access = this->access();
  if (!access.ok()) return access.status();
  if ((access->mode & kForbidden) == 0) return {};
  constexpr char kDigits[] = "01234567";
  std::string digits = "0";
  for (const int shift : {6, 3, 0}) digits += kDigits[(access->mode >> shift) & 7];
  return invalid_argument(name_ + ": its mode is " + digits +
                          ", so that others may read or change it; expected 0600, or 0640 for a "
                          "group that reads it: chmod 600 it");
}

int RegularFile::release() { return std::exchange(descriptor_, -1); }

Result<std::string> RegularFile::read_head(int64_t count) const {
  std::string text;
  // Reads a megabyte at a time, so that memory grows with the bytes that are there, not with
  // `count`.
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

Status RegularFile::read_at(int64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(at));
    const int error = errno;
    if (got == 0) return invalid_argument(name_ + ": was cut short while it was read");
    if (got < 0 && error != EINTR) {
      return invalid_argument(name_ + ": cannot be read: " + reason(error));
    }
    to = to.subspan(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    at += std::max<ssize_t>(got, 0);
  }
  return {};
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
  const fs::file_status found = fs::status(path, error);
  if (fs::is_directory(found)) {
    return invalid_argument(quote(path, 400) + " is a directory: name a file in it");
  }
  // A device or a pipe is written to directly, so its folder need not be writable.
  if (fs::exists(found) && !fs::is_regular_file(found)) {
    if (access(path.c_str(), W_OK) == 0) return {};
    return invalid_argument("cannot write " + quote(path, 400) + ": " + reason(errno));
  }
  if (const int own = own_descriptor(path); own >= 0) {
    const int flags = ::fcntl(own, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) return {};
    return invalid_argument("cannot write " + quote(path, 400) + ": it is open only for reading");
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
  return write_in_place(path, bytes, mode, [](int) { return true; });
}

Status replace_file(const std::string& path, std::string_view bytes, const FileAccess& access) {
  return write_in_place(path, bytes, 0600, [&](int descriptor) {
    return ::fchown(descriptor, access.owner, access.group) == 0 &&
           ::fchmod(descriptor, access.mode) == 0;
  });
}

}  // namespace runnel
