// The time of day, which seals carry.
#pragma once

#include <chrono>
#include <cstdint>

namespace runnel {

// Seconds since 1970 by the machine's clock, which people can set.
inline int64_t unix_seconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

}  // namespace runnel
