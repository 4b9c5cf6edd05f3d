#include "storage/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

constexpr auto kLockPause = std::chrono::milliseconds(1);
constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kMostUnsynced = size_t{16} << 20;  // of a new file that must be durable
constexpr mode_t kPrivate = 0700;

// Repeats a system call if a signal has interrupted it.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A lock of a whole file. It belongs to the open file, not to the process.
struct flock whole_file() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

DiskCalls DiskCalls::system() {
  const auto open_file = [](int folder, const char* name, int flags) {
    return ::openat(folder, name, flags);
  };
  return {::write, ::fdatasync, ::fsync, ::syncfs, ::close, ::readdir, open_file};
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), name_(std::move(other.name_)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(name_, other.name_);
  return *this;
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

int OpenFile::release() { return std::exchange(descriptor_, -1); }

Result<Folder> Folder::open(const std::string& path, const std::string& writer, DiskCalls disk) {
  const auto wrong = [&](const std::string& what) {
    return invalid_argument("the folder " + quote(path) + " " + what);
  };
  if (mkdir(path.c_str(), kPrivate) != 0 && errno != EEXIST) {
    return wrong(std::string("cannot be made: ") + strerror(errno));
  }
  OpenFile directory(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (directory.descriptor() < 0) {
    return wrong(std::string("cannot be opened: ") + strerror(errno));
  }
  struct stat status = {};
  if (fstat(directory.descriptor(), &status) != 0) {
    return wrong(std::string("cannot be examined: ") + strerror(errno));
  }
  if (status.st_uid != geteuid()) return wrong("belongs to another user");
  if ((status.st_mode & 0077) != 0) {
    return wrong("can be used by others: run chmod 700 on it");
  }
  return Folder(path, writer, std::move(disk), std::move(directory));
}

Status Folder::failed(const std::string& what, const std::string& name, int error) const {
  const bool full = error == ENOSPC || error == EDQUOT;
  return {full ? Code::kResourceExhausted : Code::kUnavailable,
          "cannot " + what + " " + quote(name.empty() ? path_ : path_ + "/" + name, 300) + ": " +
              strerror(error)};
}

Result<OpenFile> Folder::open(const std::string& name, int flags) const {
  OpenFile file(uninterrupted([&] {
    return disk_.open_file(directory_.descriptor(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
  }));
  if (file.descriptor() >= 0) {
    file.set_name(name);
    return file;
  }
  if (errno == ENOENT) return not_found("there is no file " + quote(name, 200));
  return failed("open", name, errno);
}

Result<OpenFile> Folder::open_file(const std::string& name) const { return open(name, O_RDONLY); }

Result<size_t> Folder::size_of(const OpenFile& file) const {
  struct stat status = {};
  if (fstat(file.descriptor(), &status) != 0) return failed("examine", file.name(), errno);
  return static_cast<size_t>(status.st_size);
}

Result<std::string> Folder::read_at(const OpenFile& file, size_t offset, size_t bytes) const {
  std::string text(bytes, '\0');
  size_t read = 0;
  while (read < bytes) {
    const ssize_t count = uninterrupted([&] {
      return pread(file.descriptor(), text.data() + read, bytes - read,
                   static_cast<off_t>(offset + read));
    });
    if (count < 0) return failed("read", file.name(), errno);
    if (count == 0) break;
    read += static_cast<size_t>(count);
  }
  text.resize(read);
  return text;
}

Status Folder::read_pieces(const OpenFile& file,
                           const std::function<Status(std::span<const std::byte>)>& sink) const {
  // Not filled with zeros: many files are far smaller.
  const auto piece = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
  for (;;) {
    const ssize_t count =
        uninterrupted([&] { return ::read(file.descriptor(), piece.get(), kPieceBytes); });
    if (count < 0) return failed("read", file.name(), errno);
    if (count == 0) return {};
    if (Status s = sink({piece.get(), static_cast<size_t>(count)}); !s.ok()) return s;
  }
}

Result<std::optional<std::string>> Folder::read(const std::string& name, size_t most) const {
  const auto file = open_file(name);
  if (!file.ok() && file.status().code() == Code::kNotFound) return std::optional<std::string>();
  if (!file.ok()) return file.status();
  std::string text;
  const Status status = read_pieces(*file, [&](std::span<const std::byte> piece) {
    if (text.size() + piece.size() > most) {
      return Status(Code::kDataLoss, "the file " + quote(name, 200) + " has more than " +
                                         std::to_string(most) + " bytes");
    }
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return Status();
  });
  if (!status.ok()) return status;
  return std::optional<std::string>(std::move(text));
}

Status Folder::write_all(int descriptor, std::string_view bytes, const std::string& name) const {
  while (!bytes.empty()) {
    const ssize_t count =
        uninterrupted([&] { return disk_.write(descriptor, bytes.data(), bytes.size()); });
    if (count < 0) return failed("write", name, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Status Folder::write_new(const std::string& name, const std::function<std::string()>& next,
                         bool durable) const {
  OpenFile file(uninterrupted([&] {
    return openat(directory_.descriptor(), name.c_str(),
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }));
  if (file.descriptor() < 0) return failed("make", name, errno);
  // One sync of a large state would take longer than a call may wait for a piece.
  size_t unsynced = 0;
  for (std::string piece = next(); !piece.empty(); piece = next()) {
    if (Status s = write_all(file.descriptor(), piece, name); !s.ok()) return s;
    unsynced += piece.size();
    if (!durable || unsynced < kMostUnsynced) continue;
    if (disk_.sync_file(file.descriptor()) != 0) return failed("sync", name, errno);
    unsynced = 0;
  }
  return finish(std::move(file), name, durable);
}

Status Folder::finish(OpenFile file, const std::string& name, bool durable) const {
  // After a failure, the kernel forgets what it could not write, so a second try would succeed
  // without the bytes.
  if (durable && disk_.sync_file(file.descriptor()) != 0) return failed("sync", name, errno);
  // Over NFS, bytes that are not synced may be sent only now. A full disk is noticed then.
  if (disk_.close_file(file.release()) != 0) return failed("close", name, errno);
  return {};
}

Status Folder::overwrite(const std::string& name, size_t offset, std::string_view bytes,
                         bool durable) const {
  auto file = open(name, O_WRONLY);
  if (!file.ok()) return file.status();
  if (lseek(file->descriptor(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    return failed("write", name, errno);
  }
  if (Status s = write_all(file->descriptor(), bytes, name); !s.ok()) return s;
  return finish(std::move(*file), name, durable);
}

Result<std::string> Folder::write_temporary(const std::string& name,
                                            const std::function<std::string()>& next,
                                            bool durable) {
  std::string temporary = name + "~" + writer_ + "." + std::to_string(files_->fetch_add(1));
  if (Status s = write_new(temporary, next, durable); !s.ok()) {
    remove(temporary);
    return s;
  }
  return temporary;
}

Status Folder::rename(const std::string& temporary, const std::string& name, bool durable) {
  const int folder = directory_.descriptor();
  if (renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) {
    Status status = failed("rename", temporary, errno);
    remove(temporary);
    return status;
  }
  return durable ? sync_names() : Status();
}

Status Folder::replace(const std::string& name, const std::function<std::string()>& next,
                       bool durable) {
  const auto temporary = write_temporary(name, next, durable);
  return temporary.ok() ? rename(*temporary, name, durable) : temporary.status();
}

bool Folder::remove(const std::string& name) const {
  return unlinkat(directory_.descriptor(), name.c_str(), 0) == 0;
}

Status Folder::each(const std::function<void(std::string_view)>& take) const {
  // A duplicate of the descriptor would share its position with the others.
  OpenFile again(openat(directory_.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(
      again.descriptor() < 0 ? nullptr : fdopendir(again.descriptor()), closedir);
  if (entries == nullptr) return failed("list", "", errno);
  again.release();  // `entries` closes it
  for (;;) {
    errno = 0;  // only errno tells a failure from the end
    const dirent* const entry = disk_.next_entry(entries.get());
    if (entry == nullptr) return errno == 0 ? Status() : failed("list", "", errno);
    if (entry->d_name[0] != '.') take(entry->d_name);
  }
}

Result<std::vector<std::string>> Folder::list() const {
  std::vector<std::string> names;
  const Status status = each([&](std::string_view name) { names.emplace_back(name); });
  return status.ok() ? Result<std::vector<std::string>>(std::move(names)) : status;
}

std::optional<int64_t> Folder::written_at(const std::string& name) const {
  struct stat status = {};
  if (fstatat(directory_.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return status.st_mtim.tv_sec * int64_t{1000} + status.st_mtim.tv_nsec / 1000000;
}

// Polls for the lock, because a wait in the kernel has no time limit.
Result<OpenFile> Folder::lock(const std::string& name, int64_t wait_ms) const {
  OpenFile file(uninterrupted([&] {
    return openat(directory_.descriptor(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                  0600);
  }));
  if (file.descriptor() < 0) return failed("open", name, errno);
  struct flock lock = whole_file();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  for (;;) {
    if (uninterrupted([&] { return fcntl(file.descriptor(), F_OFD_SETLK, &lock); }) == 0) {
      return file;
    }
    if (errno != EAGAIN && errno != EACCES) return failed("lock", name, errno);
    if (std::chrono::steady_clock::now() >= until) {
      return Status(Code::kUnavailable, "another server has locked " +
                                            quote(path_ + "/" + name, 300) + " for " +
                                            std::to_string(wait_ms) + " ms");
    }
    std::this_thread::sleep_for(kLockPause);
  }
}

bool Folder::is_locked(const std::string& name) const {
  const OpenFile file(uninterrupted([&] {
    return openat(directory_.descriptor(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  }));
  if (file.descriptor() < 0) return errno != ENOENT;  // unknown, so assume yes
  struct flock lock = whole_file();
  if (fcntl(file.descriptor(), F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

Status Folder::sync(const std::string& name) const {
  const auto file = open_file(name);
  if (!file.ok()) return file.status();
  if (disk_.sync_file(file->descriptor()) != 0) return failed("sync", name, errno);
  return sync_names();
}

Status Folder::sync_names() const {
  if (disk_.sync_folder(directory_.descriptor()) == 0) return {};
  return failed("sync", "", errno);
}

Status Folder::sync_all() const {
  if (disk_.sync_all(directory_.descriptor()) == 0) return {};
  return failed("sync", "", errno);
}

}  // namespace runnel
