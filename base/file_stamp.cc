#include "base/file_stamp.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

namespace runnel {
namespace {

int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

}  // namespace

FileStamp file_stamp(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .bytes = info.st_size,
          .modified = nanoseconds(info.st_mtim),
          .changed = nanoseconds(info.st_ctim)};
}

FileStamps directory_stamp(const std::string& path) {
  FileStamps stamps;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code unknown;
    const bool for_people = it->path().extension() == ".md";
    if (for_people || !it->is_regular_file(unknown)) continue;
    stamps.emplace(it->path().filename().string(), file_stamp(it->path().string()));
  }
  return stamps;
}

}  // namespace runnel
