// A name as a number, and a number as a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace runnel {

// FNV-1a, 64 bits: the same on every machine. Not for input that wants to collide.
constexpr uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

// 16 hexadecimal digits.
inline std::string hex(uint64_t number) {
  std::string digits(16, '0');
  for (size_t i = digits.size(); i-- > 0; number >>= 4) digits[i] = "0123456789abcdef"[number & 15];
  return digits;
}

}  // namespace runnel
