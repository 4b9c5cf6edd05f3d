// Stamps of files: a file whose stamp is the same has not changed. Nothing is read.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace runnel {

struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0, modified = 0, changed = 0;  // times in nanoseconds
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// The stamp of the file that `path` leads to; all zero where there is no file.
FileStamp file_stamp(const std::string& path);

using FileStamps = std::map<std::string, FileStamp>;

// The stamps of the files that stand directly in a directory, by name; empty where there is no
// directory. Files that end with ".md" are left out: models do not depend on them.
FileStamps directory_stamp(const std::string& path);

}  // namespace runnel
