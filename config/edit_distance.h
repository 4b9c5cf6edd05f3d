// Which known name was meant by a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace runnel {

// How many letters must be put in, taken out, changed or swapped with the next one to get from one
// word to the other.
int edit_distance(std::string_view from, std::string_view to);

// The known word nearest to `word`; "" when none is near enough to have been meant.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace runnel
