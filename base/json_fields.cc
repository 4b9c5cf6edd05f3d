#include "base/json_fields.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text.h"

namespace runnel {

void Faults::add(const std::string& key, const std::string& what) {
  if (!status_.ok()) return;
  status_ = invalid_argument(file_ + ": " + (key.empty() ? "the file" : key) + ": " + what);
}

Fields::Fields(Faults& faults, const Json* node, std::string path,
               std::span<const char* const> keys)
    : faults_(faults), path_(std::move(path)) {
  if (node == nullptr) return;
  if (!node->is_object()) {
    faults_.add(path_, "an object", describe(*node));
    return;
  }
  node_ = node;
  std::string known;
  for (const char* key : keys) known += (known.empty() ? "" : ", ") + std::string(key);
  for (const auto& item : node->items()) {
    const bool is_known = std::ranges::any_of(keys, [&](const char* k) { return item.key() == k; });
    if (!is_known) faults_.add(path_, "one of the keys " + known, quote(item.key()));
  }
}

const Json* Fields::find(const char* key) const {
  if (node_ == nullptr) return nullptr;
  const auto member = node_->find(key);
  return member == node_->end() ? nullptr : &*member;
}

const Json* Fields::require(const char* key, const std::string& expected) const {
  const Json* member = find(key);
  if (member == nullptr && node_ != nullptr) faults_.add(path(key), expected, "no such key");
  return member;
}

Fields Fields::object(const char* key, std::span<const char* const> keys) const {
  return {faults_, require(key, "an object"), path(key), keys};
}

int64_t Fields::integer(const char* key, int64_t min, int64_t max) const {
  const std::string expected =
      "an integer from " + std::to_string(min) + " to " + std::to_string(max);
  const Json* member = require(key, expected);
  if (member == nullptr) return min;
  // Unsigned first: a number above 2^63 must not wrap.
  const bool fits = member->is_number_unsigned()
                        ? member->get<uint64_t>() <= static_cast<uint64_t>(max)
                        : member->is_number_integer();
  if (!fits || member->get<int64_t>() < min) {
    faults_.add(path(key), expected, describe(*member));
    return min;
  }
  return member->get<int64_t>();
}

float Fields::number(const char* key, float fallback, float max) const {
  const Json* member = find(key);
  if (member == nullptr) return fallback;
  const float value = member->is_number() ? member->get<float>() : 0.0F;
  if (value > 0.0F && value <= max) return value;
  faults_.add(path(key),
              "a number above 0 (as fp32) and at most " + std::to_string(static_cast<int>(max)),
              describe(*member));
  return fallback;
}

bool Fields::boolean(const char* key, bool fallback) const {
  const Json* member = find(key);
  if (member == nullptr) return fallback;
  if (member->is_boolean()) return member->get<bool>();
  faults_.add(path(key), "true or false", describe(*member));
  return fallback;
}

double shortest(float value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double wide = 0.0;
  std::from_chars(text.data(), written.ptr, wide);
  return wide;
}

}  // namespace runnel
