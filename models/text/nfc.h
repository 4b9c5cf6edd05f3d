// Unicode's normalization form C: characters composed where they can be, and marks in order.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// Converts `text`, which must be valid UTF-8, to form C. Takes O(n log n) time for any text.
std::string nfc(std::string_view text);

}  // namespace runnel
