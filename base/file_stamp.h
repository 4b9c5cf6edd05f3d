// Stamps of files. A file with an unchanged stamp has not changed. The contents are not read.
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

// The stamp of the file at `path`. All zeros if there is no file.
FileStamp file_stamp(const std::string& path);

using FileStamps = std::map<std::string, FileStamp>;

// The stamps of the files in a directory, without its subdirectories, by name. Empty if there is no
// directory. Files that end with ".md" are left out, because models do not depend on them.
FileStamps directory_stamp(const std::string& path);

}  // namespace runnel
