// A folder of small and large files that several processes share. Files are replaced as a whole, or
// changed in place. Locks work between processes and between threads.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace runnel {

// The system calls that fail if the disk fails. A test can replace them with calls that fail.
struct DiskCalls {
  std::function<ssize_t(int descriptor, const void* bytes, size_t count)> write;  // as write(2)
  std::function<int(int descriptor)> sync_file;                                   // as fdatasync(2)
  std::function<int(int descriptor)> sync_folder;                                 // as fsync(2)
  std::function<int(int descriptor)> sync_all;                                    // as syncfs(2)
  std::function<int(int descriptor)> close_file;                                  // as close(2)
  std::function<dirent*(DIR* folder)> next_entry;                                 // as readdir(3)
  // As openat(2), for a file that must exist.
  std::function<int(int folder, const char* name, int flags)> open_file;

  // The real system calls.
  static DiskCalls system();
};

// A file that is closed, and unlocked, with this object.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();

  int descriptor() const { return descriptor_; }
  // The name for errors.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  // The descriptor, which the caller must close.
  int release();

 private:
  int descriptor_ = -1;
  std::string name_;
};

class Folder {
 public:
  // Opens a folder, or makes it with mode 0700; the folder that it is in must exist. `writer`
  // distinguishes the temporary files of this object from those of others. INVALID_ARGUMENT if it
  // cannot be used, belongs to another user, or gives others access.
  static Result<Folder> open(const std::string& path, const std::string& writer, DiskCalls disk);

  // The argument of open().
  const std::string& writer() const { return writer_; }

  // The bytes of a file of at most `most`; none if there is no such file.
  Result<std::optional<std::string>> read(const std::string& name, size_t most) const;
  // Opens a file for reading. NOT_FOUND.
  Result<OpenFile> open_file(const std::string& name) const;
  Result<size_t> size_of(const OpenFile& file) const;
  // The bytes from `offset` on; fewer at the end of the file.
  Result<std::string> read_at(const OpenFile& file, size_t offset, size_t bytes) const;
  // Passes the bytes of a file to `sink`.
  Status read_pieces(const OpenFile& file,
                     const std::function<Status(std::span<const std::byte>)>& sink) const;

  // Replaces the contents of a file. `next` returns them in pieces, and then an empty piece. With
  // `durable` the bytes and the name are on the disk afterwards. After a failure the file is as it
  // was, unless only the name could not be made durable.
  Status replace(const std::string& name, const std::function<std::string()>& next, bool durable);
  // The two steps of replace(). The first one writes the pieces to a new temporary file and returns
  // its name. The second one renames a temporary file.
  Result<std::string> write_temporary(const std::string& name,
                                      const std::function<std::string()>& next, bool durable);
  Status rename(const std::string& temporary, const std::string& name, bool durable);
  // Overwrites some bytes of a file. With `durable` they are on the disk afterwards. After a
  // failure, any number of them may be written. NOT_FOUND.
  Status overwrite(const std::string& name, size_t offset, std::string_view bytes,
                   bool durable) const;
  // False if there was no such file.
  bool remove(const std::string& name) const;
  // Passes the name of each file to `take`. UNAVAILABLE if not all names can be read.
  Status each(const std::function<void(std::string_view)>& take) const;
  // The names of all files.
  Result<std::vector<std::string>> list() const;
  // Milliseconds since 1970 when a file was last written; none if there is no such file.
  std::optional<int64_t> written_at(const std::string& name) const;

  // Locks a file until the result is destroyed. The file is made if it does not exist. UNAVAILABLE
  // if somebody else holds the lock for `wait_ms`.
  Result<OpenFile> lock(const std::string& name, int64_t wait_ms) const;
  // Whether somebody has locked the file; false if there is no such file.
  bool is_locked(const std::string& name) const;

  // Makes the bytes and the name of a file durable. Any process may have written the file.
  // NOT_FOUND.
  Status sync(const std::string& name) const;
  // Makes the names of all files durable.
  Status sync_names() const;
  // Makes everything that has been written to the file system durable.
  Status sync_all() const;

 private:
  Folder(const std::string& path, const std::string& writer, DiskCalls disk, OpenFile directory)
      : path_(path), writer_(writer), disk_(std::move(disk)), directory_(std::move(directory)) {}

  Status write_new(const std::string& name, const std::function<std::string()>& next,
                   bool durable) const;
  Result<OpenFile> open(const std::string& name, int flags) const;
  Status finish(OpenFile file, const std::string& name, bool durable) const;
  Status write_all(int descriptor, std::string_view bytes, const std::string& name) const;
  // `name` is empty for the folder itself.
  Status failed(const std::string& what, const std::string& name, int error) const;

  std::string path_;
  std::string writer_;
  DiskCalls disk_;
  OpenFile directory_;
  std::unique_ptr<std::atomic<uint64_t>> files_ = std::make_unique<std::atomic<uint64_t>>(0);
};

}  // namespace runnel
