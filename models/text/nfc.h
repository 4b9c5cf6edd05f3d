// Unicode's normalization form C: characters composed where they can be, and marks in order.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// `text`, which is valid UTF-8, in form C. O(n log n), whatever it holds.
std::string nfc(std::string_view text);

}  // namespace runnel
