// The file of a session's record, which is changed in place. Replacing it by another file, with a
// rename, takes 20 times as long on ext4, and with syncs three times as long.
//
// The file has two areas of equal size. An area begins with the number and the writer of its text,
// and with the length and the SHA-256 of the text. The file's text is in the area with the larger
// number, if it is whole. The next text goes into the other area, so a write that is cut off leaves
// the text as it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "storage/folder.h"

namespace runnel {

class RecordFile {
 public:
  // Opens a file and reads its text. DATA_LOSS if neither area is whole: the file is damaged, or
  // somebody else writes it.
  static Result<RecordFile> open(const Folder& folder, const std::string& name);

  // None: there is no such file.
  const std::optional<std::string>& text() const { return text_; }

  // Replaces the text, and makes the file if there is none. Call it at most once, and hold a lock
  // from before open() until write() has returned, so that nobody else writes the file in between.
  // With `durable` the text and the name of the file are on the disk afterwards, if all earlier
  // writes also used `durable`. After a failure the file has its old text, with two exceptions:
  // the disk also failed to write the old text back, or the file is new and everything succeeded
  // except for making its name durable.
  Status write(Folder& folder, std::string_view text, bool durable);

 private:
  explicit RecordFile(std::string name) : name_(std::move(name)) {}

  Status read(const Folder& folder, const OpenFile& file);
  bool is_of_good_size(size_t needed) const;
  void forget_writer(const Folder& folder) const;

  std::string name_;
  std::optional<std::string> text_;
  uint64_t number_ = 0;  // of the write that made the text
  // The beginning of Folder::writer() of this write. Zeros: the file's name may not be on the disk.
  std::array<char, 8> writer_{};
  size_t area_bytes_ = 0;  // of each area
  size_t other_ = 0;       // where the area begins that does not have the text
};

}  // namespace runnel
