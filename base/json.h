// The only parser for untrusted JSON, with limits. Also writes JSON strings and text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_forward.h"
#include "base/status.h"

namespace runnel {

struct JsonLimits {
  int64_t bytes;   // of the text
  int64_t values;  // in the whole tree; bounds the memory for any text
  int depth;       // of objects and arrays
};

// Parses `text`, which must be one JSON value. INVALID_ARGUMENT if the text exceeds the limits, is
// not JSON (RFC 8259, no comments), has a key twice in an object, or has more text after the value.
// The message names `source` (a file), then line and column or the key's path ("model.head.kind").
Result<Json> parse_json(std::string_view text, const std::string& source, const JsonLimits& limits);

// A value as an error message shows it: "12", "'relu'", "an object", "an array of 3".
std::string describe(const Json& value);

// `text` as a JSON string in ASCII, quotes included; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

// `value` as UTF-8 text: in one line without spaces or, with `indent`, on several lines, with
// `indent` spaces for each level. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const OrderedJson& value, int indent = -1);

}  // namespace runnel
