// Reads the members of a request's JSON object and keeps the first fault, with the field's name.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "server/http/fault.h"

namespace runnel {

inline constexpr std::chrono::seconds kMostQueueTime = std::chrono::hours(1);

// The whole number that `value` is, which may be written with a fraction of zeros, as in 16.0 and
// 1e3. None for every other value, and beyond 64 bits.
std::optional<int64_t> whole_number(const Json& value);

// The nearest float, which is 0 only for 0. None beyond the range of floats, and for another type.
std::optional<float> float_number(const Json& value);

// The whole number of [min, max] that a request's target has for `key` after its "?"; none where it
// has no such key. INVALID_ARGUMENT for everything else.
Result<std::optional<int64_t>> query_number(std::string_view target, std::string_view key,
                                            int64_t min, int64_t max);

// A list of tokens; none where it has anything else.
std::optional<std::vector<int32_t>> tokens_of(const Json& list);

// Bytes of memory that the object in such a body takes, with the prompts that are read of it.
int64_t parsed_bytes(std::string_view body);

// The JSON object in a request's body; INVALID_ARGUMENT where it is none.
Result<Json> parse_body(std::string_view body);

// Reading continues after a fault with harmless values, so that no caller has to look. A member
// that is null is as if it were absent.
class RequestFields {
 public:
  // `root` is an object and outlives this.
  explicit RequestFields(const Json& root) : root_(root) {}

  // Null where the member is absent.
  const Json* find(const char* key);
  // None where the member is absent or has a fault.
  std::optional<int64_t> integer(const char* key, int64_t min, int64_t max);
  std::optional<float> number(const char* key);
  // From 0 to `most`, in seconds, which may have a fraction.
  std::optional<Duration> seconds(const char* key, std::chrono::seconds most);
  std::optional<std::string> text(const char* key);
  bool boolean(const char* key, bool fallback);
  // Must be there.
  std::vector<int32_t> tokens(const char* key);

  // Keeps the fault of a member: "KEY WHAT".
  void refuse(const std::string& key, const std::string& what);
  // The first fault; a member that nobody has asked for is one. Last of all.
  Fault end();

 private:
  void wrong_type(const char* key, const char* expected, const Json& found);

  const Json& root_;
  std::set<std::string_view> known_;
  Fault fault_;
};

}  // namespace runnel
