// idx files (the format of the MNIST distribution), plain or gzip: bytes in 1 to 4 dimensions, the
// first of which counts the items. Files come from anywhere: memory follows what is really there,
// not what a header says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace runnel {

// True when `bytes` begin as an idx file or as a gzip file does.
bool looks_like_idx(std::span<const uint8_t> bytes);

class IdxFile {
 public:
  // Opens a file and checks its header. NOT_FOUND when there is none; INVALID_ARGUMENT naming the
  // file, expected and found for a header that is none, elements that are not unsigned bytes, or
  // impossible sizes.
  static Result<IdxFile> open(const std::string& path);

  // Items the header announces, and the sizes of each of them: {28, 28} for MNIST.
  int64_t items() const { return items_; }
  const std::vector<int64_t>& item_shape() const { return item_shape_; }
  int64_t item_bytes() const;

  // The next item, in the order of the file; nothing after the last. INVALID_ARGUMENT when the file
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
  std::unique_ptr<void, Close> file_;  // of zlib, which reads plain files as well
  int64_t items_ = 0, taken_ = 0;
  std::vector<int64_t> item_shape_;
};

}  // namespace runnel
