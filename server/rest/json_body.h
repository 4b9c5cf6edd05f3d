// The JSON body of a request to runnel's own paths.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "base/json.h"
#include "server/http/request_fields.h"

namespace runnel {

// Reserves memory for `call`, and parses `body`. The memory is enough for the parsed JSON, for the
// names or values that are made from it, and for the answer. RESOURCE_EXHAUSTED if there is not
// enough memory, INVALID_ARGUMENT if `body` is not a JSON object.
template <typename Call>
Result<Json> read_body(Call& call, std::string_view body) {
  constexpr int64_t kParsedPerByte = 64;
  constexpr int64_t kParsedAnyway = 64 << 10;
  if (Status s = call.reserve(kParsedAnyway + kParsedPerByte * std::ssize(body)); !s.ok()) return s;
  return parse_body(body);
}

}  // namespace runnel
