// The JSON body of a request to runnel's own paths.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "base/json.h"
#include "server/http/request_fields.h"

namespace runnel {

// Reserves what `body` takes as JSON, as names or values and as the answer, on behalf of `call`,
// and parses it. RESOURCE_EXHAUSTED if there is no room, INVALID_ARGUMENT if it is no JSON object.
template <typename Call>
Result<Json> read_body(Call& call, std::string_view body) {
  constexpr int64_t kParsedPerByte = 64;
  constexpr int64_t kParsedAnyway = 64 << 10;
  if (Status s = call.reserve(kParsedAnyway + kParsedPerByte * std::ssize(body)); !s.ok()) return s;
  return parse_body(body);
}

}  // namespace runnel
