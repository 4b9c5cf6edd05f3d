// Words of error messages: what came from outside is shown escaped and cut short.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// `text` as printable ASCII, other bytes as \xNN; at most `most` bytes of it, then "...".
std::string printable(std::string_view text, size_t most = 80);

// printable() between single quotes: a name in a message.
std::string quote(std::string_view text, size_t most = 80);

// "[3, 4]".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace runnel
