#include "server/process/description.h"

#include "base/check.h"
#include "base/ordered_json.h"

namespace runnel {
namespace {

constexpr JsonLimits kLimits{INT64_MAX, INT64_MAX, 64};  // of text that is part of the program

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

}  // namespace

std::string joined_description(std::span<const std::string_view> doors) {
  OrderedJson all = parsed(shared_description());
  for (const std::string_view door : doors) {
    const OrderedJson part = parsed(door);
    add_members(part.at("paths"), all["paths"]);
    for (const auto& [kind, components] : part.at("components").items()) {
      add_members(components, all["components"][kind]);
    }
  }
  return json_text(all) + "\n";
}

}  // namespace runnel
