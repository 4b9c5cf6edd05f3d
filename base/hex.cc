#include "base/hex.h"

namespace runnel {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string hex(uint64_t number) {
  std::string digits(16, '0');
  for (size_t i = digits.size(); i-- > 0; number >>= 4) digits[i] = kDigits[number & 15];
  return digits;
}

std::string hex(std::string_view bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    digits += kDigits[byte >> 4];
    digits += kDigits[byte & 15];
  }
  return digits;
}

std::optional<std::string> bytes_of_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); i += 2) {
    const size_t high = kDigits.find(digits[i]);
    const size_t low = kDigits.find(digits[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace runnel
