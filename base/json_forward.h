// The types of base/json.h, for headers that only name them.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace runnel {

// JSON that was read. A tree from parse_json() has no duplicate keys, and its strings are UTF-8.
using Json = nlohmann::json;
// JSON to be written: members keep the order in which they are added.
using OrderedJson = nlohmann::ordered_json;

}  // namespace runnel
