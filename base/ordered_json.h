// Parses untrusted JSON and keeps the order of members. base/json.h has the rules and the limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace runnel {

// Reads as parse_json() does, and keeps the order of the members of every object.
Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& source,
                                       const JsonLimits& limits);

// About how many bytes of memory a tree takes.
int64_t tree_bytes(const OrderedJson& tree);

}  // namespace runnel
