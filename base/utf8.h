// Checks UTF-8, and joins characters whose bytes arrive in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace runnel {

// Converts a stream of bytes to text. A character is written once it is complete. Invalid bytes
// become U+FFFD: one for each incomplete character, and one for each byte that cannot begin or
// continue a character (Unicode, section 3.9). The text does not depend on where the stream is
// split.
class Utf8Stream {
 public:
  // The maximum number of bytes of text for one byte of the stream: a byte that cannot be part of a
  // character becomes U+FFFD, which has three bytes.
  static constexpr int64_t kMostPerByte = 3;

  // Appends to `text` the characters that `bytes` completes.
  void add(std::string_view bytes, std::string& text);
  // Ends the stream. An incomplete character becomes U+FFFD.
  void end(std::string& text);
  // Whether a character has begun that is not complete yet.
  bool is_waiting() const { return !waiting_.empty(); }

 private:
  std::string waiting_;                       // at most four bytes, so it never allocates
  int missing_ = 0;                           // missing bytes of the character
  unsigned char least_ = 0x80, most_ = 0xBF;  // bounds of the next byte
};

// The length of the longest prefix of `text` that is complete, valid UTF-8. text.size() if all of
// it is.
size_t valid_utf8_prefix(std::string_view text);

}  // namespace runnel
