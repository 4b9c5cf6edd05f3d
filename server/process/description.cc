#include "server/process/description.h"

#include <cstdint>

#include "base/check.h"
#include "base/limits.h"
#include "base/ordered_json.h"
#include "server/host/server_context.h"

namespace runnel {
namespace {

constexpr JsonLimits kLimits{INT64_MAX, INT64_MAX, 64};  // for text that is part of the program

OrderedJson parsed(std::string_view text) {
  Result<OrderedJson> json = parse_ordered_json(text, "openapi.json", kLimits);
  check(json.ok(), "each openapi.json is JSON");
  return std::move(*json);
}

void add_members(const OrderedJson& from, OrderedJson& to) {
  for (const auto& [key, value] : from.items()) {
    check(!to.contains(key), "no two doors describe the same");
    to[key] = value;
  }
}

// Replaces the name of the limit in `text` by `value`: "limits.samples", with its quotes.
void fill(const Limit& limit, int64_t value, std::string& text) {
  const std::string name = "\"limits." + std::string(limit.name) + "\"";
  const std::string number = std::to_string(value);
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
    text.replace(at, name.size(), number);
  }
}

}  // namespace

std::string joined_description(std::span<const std::string_view> doors,
                               const ServerContext& state) {
  OrderedJson all = parsed(shared_description());
  for (const std::string_view door : doors) {
    const OrderedJson part = parsed(door);
    add_members(part.at("paths"), all["paths"]);
    for (const auto& [kind, components] : part.at("components").items()) {
      add_members(components, all["components"][kind]);
    }
  }
  std::string text = json_text(all) + "\n";
  fill(limits::kSamples, state.samples, text);
  fill(limits::kMaxValues, state.max_values, text);
  fill(limits::kTextBytes, state.text_bytes, text);
  return text;
}

}  // namespace runnel
