#include "server/http/request_fields.h"

#include <cmath>
#include <limits>

#include "base/text.h"
#include "server/http/header_text.h"

namespace runnel {
namespace {

constexpr int kDepth = 8;  // nesting of objects and arrays in a body
// A number of two bytes in JSON takes 16 bytes in an array that doubles, and 4 in a prompt.
constexpr int64_t kParsedPerByte = 32;
constexpr int64_t kParsedAnyway = 64 << 10;
constexpr JsonLimits kNumber{.bytes = 32, .values = 1, .depth = 1};  // in a query

std::string range_text(int64_t min, int64_t max) {
  return "a whole number between " + std::to_string(min) + " and " + std::to_string(max);
}

}  // namespace

std::optional<int64_t> whole_number(const Json& value) {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    const bool fits = number >= -kBeyond && number < kBeyond && number == std::trunc(number);
    return fits ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  const bool is_huge = value.is_number_unsigned() &&
                       value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (!value.is_number_integer() || is_huge) return std::nullopt;
  return value.get<int64_t>();
}

std::optional<float> float_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::abs(number) > std::numeric_limits<float>::max()) return std::nullopt;
  const auto nearest = static_cast<float>(number);
  if (nearest != 0 || number == 0) return nearest;
  return std::copysign(std::numeric_limits<float>::denorm_min(), nearest);
}

Result<std::optional<int64_t>> query_number(std::string_view target, std::string_view key,
                                            int64_t min, int64_t max) {
  const std::string text = query_of(target, key);
  if (text.empty()) return std::optional<int64_t>();
  const Result<Json> value = parse_json(text, std::string(key), kNumber);
  const auto number = value.ok() ? whole_number(*value) : std::nullopt;
  if (number && *number >= min && *number <= max) return number;
  return invalid_argument(std::string(key) + " is " + quote(text) + "; it must be " +
                          range_text(min, max));
}

std::optional<std::vector<int32_t>> tokens_of(const Json& list) {
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const Json& value : list) {
    const auto token = whole_number(value);
    if (!token || *token < 0 || *token > INT32_MAX) return std::nullopt;
    tokens.push_back(static_cast<int32_t>(*token));
  }
  return tokens;
}

int64_t parsed_bytes(std::string_view body) {
  return kParsedAnyway + kParsedPerByte * std::ssize(body);
}

Result<Json> parse_body(std::string_view body) {
  const int64_t bytes = std::ssize(body);
  Result<Json> json = parse_json(body, "the body", {bytes, bytes, kDepth});
  if (!json.ok() || json->is_object()) return json;
  return invalid_argument("the body is " + describe(*json) + "; expected a JSON object");
}

const Json* RequestFields::find(const char* key) {
  known_.insert(key);
  const auto at = root_.find(key);
  return at == root_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<int64_t> RequestFields::integer(const char* key, int64_t min, int64_t max) {
  const Json* const member = find(key);
  if (member == nullptr) return std::nullopt;
  const auto number = whole_number(*member);
  if (number && *number >= min && *number <= max) return number;
  refuse(key, "is " + describe(*member) + "; it must be " + range_text(min, max));
  return std::nullopt;
}

std::optional<float> RequestFields::number(const char* key) {
  const Json* const member = find(key);
  if (member == nullptr) return std::nullopt;
  if (!member->is_number()) {
    wrong_type(key, "a number", *member);
    return std::nullopt;
  }
  const auto number = float_number(*member);
  if (!number) refuse(key, "is " + describe(*member) + ", which is too large; send a smaller one");
  return number;
}

std::optional<Duration> RequestFields::seconds(const char* key, std::chrono::seconds most) {
  const Json* const member = find(key);
  if (member == nullptr) return std::nullopt;
  const double seconds = member->is_number() ? member->get<double>() : -1;
  if (seconds >= 0 && seconds <= static_cast<double>(most.count())) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  refuse(key, "is " + describe(*member) + "; it must be a number of seconds from 0 to " +
                  std::to_string(most.count()));
  return std::nullopt;
}

std::optional<std::string> RequestFields::text(const char* key) {
  const Json* const member = find(key);
  if (member == nullptr) return std::nullopt;
  if (member->is_string()) return member->get<std::string>();
  wrong_type(key, "a string", *member);
  return std::nullopt;
}

bool RequestFields::boolean(const char* key, bool fallback) {
  const Json* const member = find(key);
  if (member == nullptr) return fallback;
  if (member->is_boolean()) return member->get<bool>();
  wrong_type(key, "true or false", *member);
  return fallback;
}

std::vector<int32_t> RequestFields::tokens(const char* key) {
  const Json* const member = find(key);
  auto tokens = member != nullptr && member->is_array() ? tokens_of(*member) : std::nullopt;
  if (tokens) return std::move(*tokens);
  refuse(key, "must be a list of tokens from 0 to 2147483647");
  return {};
}

void RequestFields::refuse(const std::string& key, const std::string& what) {
  if (!fault_.ok()) return;
  fault_ = {invalid_argument(key + " " + what), key};
}

void RequestFields::wrong_type(const char* key, const char* expected, const Json& found) {
  refuse(key, "is " + describe(found) + "; expected " + expected);
}

Fault RequestFields::end() {
  for (const auto& [key, value] : root_.items()) {
    if (known_.contains(key)) continue;
    const std::string name = key.empty() ? "''" : printable(key);
    refuse(name, "is not a field that this server knows; leave it out");
  }
  return fault_;
}

}  // namespace runnel
