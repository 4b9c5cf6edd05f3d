// A hash of a name.
#pragma once

#include <cstdint>
#include <string_view>

namespace runnel {

// FNV-1a, 64 bits: the same on every machine. It is not collision-resistant.
constexpr uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace runnel
