// JSON from outside, read with bounds: depth, number of values, no key twice, no byte after the
// end. Internal to models/, and the only header here that sees the JSON library.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace runnel {

struct JsonLimits {
  int64_t bytes;   // of the text
  int64_t values;  // in the whole tree; bounds the memory, whatever the text
  int depth;       // of objects and arrays
};

// Reads `text` into `tree`. INVALID_ARGUMENT names `file`, and the line and column or the key.
Status parse_json(std::string_view text, const std::string& file, const JsonLimits& limits,
                  nlohmann::json& tree);

// A value as an error message shows it: "12", "'relu'", "an array of 3".
std::string describe(const nlohmann::json& value);

}  // namespace runnel
