#include "base/utf8.h"

namespace runnel {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The number of bytes that follow a first byte, and the range of the second byte. It excludes
// overlong forms, surrogates and characters above U+10FFFF.
struct Lead {
  int following = -1;  // -1: not the first byte of a character
  unsigned char least = 0x80, most = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {0};
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  return {};
}

}  // namespace

void Utf8Stream::add(std::string_view bytes, std::string& text) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (missing_ > 0 && (byte < least_ || byte > most_)) end(text);
    Lead next;
    if (missing_ == 0) {
      next = lead_of(byte);
      if (next.following < 0) {
        text += kReplacement;
        continue;
      }
      missing_ = next.following;
    } else {
      --missing_;
    }
    least_ = next.least;
    most_ = next.most;
    waiting_ += c;
    if (missing_ > 0) continue;
    text += waiting_;
    waiting_.clear();
  }
}

void Utf8Stream::end(std::string& text) {
  if (missing_ > 0) text += kReplacement;
  waiting_.clear();
  missing_ = 0;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
    if (lead.following < 0 || text.size() - at <= static_cast<size_t>(lead.following)) return at;
    for (int i = 1; i <= lead.following; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + static_cast<size_t>(i)]);
      const Lead range = i == 1 ? lead : Lead();
      if (byte < range.least || byte > range.most) return at;
    }
    at += static_cast<size_t>(lead.following) + 1;
  }
  return at;
}

}  // namespace runnel
