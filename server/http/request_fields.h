// Reads the members of a request's JSON object, and keeps the first fault with the name of its
// field.
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

// The whole number `value`, which may also be written as 16.0 or 1e3. None if it is not a whole
// number, or needs more than 64 bits.
std::optional<int64_t> whole_number(const Json& value);

// The nearest float, but never 0 for a number other than 0. None if `value` is not a number, or is
// beyond the range of floats.
std::optional<float> float_number(const Json& value);

// The query parameter `key` of a request's target: a whole number from `min` to `max`. None if the
// target does not have it. INVALID_ARGUMENT for any other value.
Result<std::optional<int64_t>> query_number(std::string_view target, std::string_view key,
                                            int64_t min, int64_t max);

// A list of tokens. None if the list has anything else.
std::optional<std::vector<int32_t>> tokens_of(const Json& list);

// The bytes of memory for the object in this body, and for the prompts that are read from it.
int64_t parsed_bytes(std::string_view body);

// The JSON object in a request's body. INVALID_ARGUMENT if the body is not a JSON object.
Result<Json> parse_body(std::string_view body);

// After a fault, the functions return harmless values, so that callers need no checks before end().
// A member that is null counts as absent.
class RequestFields {
 public:
  // `root` must be an object, and must outlive this.
  explicit RequestFields(const Json& root) : root_(root) {}

  // Null if the member is absent.
  const Json* find(const char* key);
  // None if the member is absent or has a fault.
  std::optional<int64_t> integer(const char* key, int64_t min, int64_t max);
  std::optional<float> number(const char* key);
  // From 0 to `most`, in seconds, which may have a fraction.
  std::optional<Duration> seconds(const char* key, std::chrono::seconds most);
  std::optional<std::string> text(const char* key);
  bool boolean(const char* key, bool fallback);
  // The member is required.
  std::vector<int32_t> tokens(const char* key);

  // Keeps the fault of a member: "KEY WHAT".
  void refuse(const std::string& key, const std::string& what);
  // The first fault. A member that no function was called for is a fault, too. To be called last.
  Fault end();

 private:
  void wrong_type(const char* key, const char* expected, const Json& found);

  const Json& root_;
  std::set<std::string_view> known_;
  Fault fault_;
};

}  // namespace runnel
