// What tells one state of a file from another without reading it.
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

// Of the file that `path` leads to; of none: all zero.
FileStamp file_stamp(const std::string& path);

using FileStamps = std::map<std::string, FileStamp>;

// Of the files in a directory, by name, those in its own directories not; of none: empty. What ends
// with ".md" is for people, and left out.
FileStamps directory_stamp(const std::string& path);

}  // namespace runnel
