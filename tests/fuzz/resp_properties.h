// Checks properties that every Redis reply must have, as properties.h does for files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Reads replies until the bytes end, at once and byte by byte, with the same result. If they are
// refused, the status is DATA_LOSS with one short printable line. If a reply is accepted, it is
// within its bounds. True if there was a reply.
bool check_replies(std::string_view bytes);

// Small well-formed inputs to start from, and words for the fuzzer to insert.
std::vector<std::string> reply_seeds();
std::span<const std::string_view> reply_words();

}  // namespace runnel
