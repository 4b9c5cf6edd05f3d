// Finds the known name that a misspelt word was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace runnel {

// The edit distance of two words: the number of letters to insert, remove, replace or swap with the
// next one.
int edit_distance(std::string_view from, std::string_view to);

// The known word nearest to `word`. "" if none is near enough.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace runnel
