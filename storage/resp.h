// RESP2, the protocol of Redis: writes commands, and reads replies within bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace runnel {

// A reply with more bytes of text is refused before they are read.
inline constexpr int64_t kMostBulkBytes = (int64_t{4} << 20) + 4096;
inline constexpr size_t kMostLineBytes = 4096;
inline constexpr int64_t kMostReplyItems = 16;

enum class RespKind { kText, kError, kNumber, kBulk, kNil, kArray };

// A reply. The items of an array are not arrays.
struct RespValue {
  RespKind kind = RespKind::kNil;
  std::string text = {};  // kText, kError, kBulk
  int64_t number = 0;     // kNumber
  std::vector<RespValue> items = {};

  friend bool operator==(const RespValue&, const RespValue&) = default;
};

// A command as an array of its words.
std::string resp_command(std::span<const std::string_view> words);

// Reads one reply after another. Memory grows only with bytes that have arrived.
class RespReader {
 public:
  // Reads at least one byte, and returns the number of bytes. A failure ends the reply that is
  // being read.
  using Fill = std::function<Result<size_t>(std::span<char>)>;

  explicit RespReader(Fill fill) : fill_(std::move(fill)) {}

  // DATA_LOSS says which bytes are not a reply, or are too many; errors of `fill`. After an error,
  // nothing can be read.
  Result<RespValue> next();
  // True if bytes have been read that belong to no reply yet.
  bool has_more() const { return at_ < buffer_.size(); }

 private:
  Result<RespValue> value(bool in_array);
  Result<RespValue> bulk(int64_t size);
  Result<RespValue> array(int64_t size);
  Result<std::string> line();
  Status fill();

  const Fill fill_;
  int64_t left_ = 0;  // bytes of text that the reply may still have
  std::string buffer_;
  size_t at_ = 0;  // the first byte of the buffer that is not read
};

}  // namespace runnel
