// Reads, validates and writes the text of config.json.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "models/spec.h"

namespace runnel {

// Parses and validates the text of a config.json. `file` only names it in errors. Unknown keys,
// missing keys, wrong types and values outside the limits are INVALID_ARGUMENT with the key's path,
// what was expected and what was found.
Result<Spec> parse_spec(std::string_view json, const std::string& file);

// The spec as the JSON that parse_spec() reads.
std::string spec_to_json(const Spec& spec);

}  // namespace runnel
