#include "server/host/json_members.h"

#include <algorithm>

#include "base/text.h"

namespace runnel {

Fault refusal(const std::string& at, const std::string& what) {
  return {invalid_argument(at + " " + what), at};
}

std::string shown(const OrderedJson& value) { return describe(Json(value)); }

Fault unknown_member(const std::string& at, const std::string& key) {
  return refusal(at + "." + (key.empty() ? "''" : printable(key)),
                 "is not a field that this server knows; leave it out");
}

Fault check_members(const OrderedJson& object, const std::string& at,
                    std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::count(known, key) == 0 && !value.is_null()) return unknown_member(at, key);
  }
  return {};
}

bool is_one_of(const OrderedJson* value, std::span<const std::string_view> texts) {
  return value != nullptr &&
         std::ranges::any_of(texts, [&](std::string_view text) { return *value == text; });
}

OrderedJson* member(OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Fault check_text(const OrderedJson* value, const std::string& at, bool required) {
  if (value == nullptr) return required ? refusal(at, "is not set; expected a text") : Fault();
  return value->is_string() ? Fault() : refusal(at, "is " + shown(*value) + "; expected a text");
}

}  // namespace runnel
