// UTF-8, checked, and put together from bytes that come in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace runnel {

// Makes text of a stream of bytes: every character goes out once it is whole. Bytes that cannot be
// part of one become U+FFFD, one for each maximal part of a character (Unicode, section 3.9): what
// goes out is the same wherever the stream is cut.
class Utf8Stream {
 public:
  // Appends to `text` the characters that `bytes` completes.
  void add(std::string_view bytes, std::string& text);
  // The stream has ended: a character that is not whole becomes U+FFFD.
  void end(std::string& text);
  // A character has begun that is not whole yet.
  bool is_waiting() const { return !waiting_.empty(); }

 private:
  std::string waiting_;                       // at most three bytes: never an allocation
  int missing_ = 0;                           // bytes of the character that are to come
  unsigned char least_ = 0x80, most_ = 0xBF;  // of the next one
};

// The length of the longest prefix of `text` that is whole, valid UTF-8; text.size() where all is.
size_t valid_utf8_prefix(std::string_view text);

}  // namespace runnel
