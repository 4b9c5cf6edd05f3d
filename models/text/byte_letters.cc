#include "models/text/byte_letters.h"

#include <array>
#include <cstddef>

namespace runnel {
namespace {

constexpr int kBytes = 256;

struct Letters {
  std::array<int, 0x144> byte_of{};  // by character; -1: not the letter of a byte
  std::array<std::string, kBytes> of_byte;

  Letters() {
    byte_of.fill(-1);
    int other = kBytes;
    for (int byte = 0; byte < kBytes; ++byte) {
      const bool prints = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      const int character = prints ? byte : other++;
      byte_of[static_cast<size_t>(character)] = byte;
      if (character < 0x80) {
        of_byte[static_cast<size_t>(byte)] = {static_cast<char>(character)};
      } else {
        of_byte[static_cast<size_t>(byte)] = {static_cast<char>(0xC0 | character >> 6),
                                              static_cast<char>(0x80 | (character & 0x3F))};
      }
    }
  }
};

const Letters& letters() {
  static const Letters kLetters;
  return kLetters;
}

}  // namespace

const std::string& letter_of(unsigned char byte) { return letters().of_byte[byte]; }

std::optional<std::string> bytes_of_letters(std::string_view text) {
  const auto& byte_of = letters().byte_of;
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned character = static_cast<unsigned char>(text[at]);
    if (character >= 0xE0) return std::nullopt;  // three bytes or more
    if (character >= 0x80) {
      character = (character & 0x1F) << 6 | (static_cast<unsigned char>(text[++at]) & 0x3F);
    }
    if (character >= byte_of.size() || byte_of[character] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of[character]);
  }
  return bytes;
}

}  // namespace runnel
