// Reads idx files (the format of the MNIST distribution), plain or gzip. They are arrays of bytes
// with 1 to 4 dimensions. The first dimension is the number of items. A file may come from
// anywhere, so memory is allocated for the bytes that it has, not for the sizes in its header.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace runnel {

// True if `bytes` begin like an idx file or a gzip file.
bool looks_like_idx(std::span<const uint8_t> bytes);

class IdxFile {
 public:
  // Opens a file and checks its header. NOT_FOUND if there is no such file. INVALID_ARGUMENT if the
  // header is not that of an idx file, the elements are not unsigned bytes, or the sizes are
  // impossible. The message names the file, what was expected and what was found.
  static Result<IdxFile> open(const std::string& path);

  // The number of items in the header, and the shape of each item: {28, 28} for MNIST.
  int64_t items() const { return items_; }
  const std::vector<int64_t>& item_shape() const { return item_shape_; }
  int64_t item_bytes() const;

  // The next item, in the order of the file. None after the last item. INVALID_ARGUMENT if the file
  // ends early, is damaged, or has bytes after its last item.
  Result<std::optional<std::vector<uint8_t>>> next();

 private:
  struct Close {
    void operator()(void* file) const;
  };
  Status read_header();
  Status read(std::span<uint8_t> bytes, const std::string& what);
  Status expect_end();

  std::string path_;
  std::unique_ptr<void, Close> file_;  // of zlib, which also reads plain files
  int64_t items_ = 0, taken_ = 0;
  std::vector<int64_t> item_shape_;
};

}  // namespace runnel
