// Checks that must hold for every reply of Redis, as properties.h has them for files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Reads replies until the bytes end, in one piece and byte by byte, which give the same. Refused:
// DATA_LOSS with one short printable line. Accepted: a reply is within its bounds. True when there
// was a reply.
bool check_replies(std::string_view bytes);

// Small well-formed inputs to start from, and words that are worth inserting.
std::vector<std::string> reply_seeds();
std::span<const std::string_view> reply_words();

}  // namespace runnel
