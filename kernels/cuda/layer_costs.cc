#include "kernels/cuda/layer_costs.h"

#include <array>
#include <utility>

#include "base/file.h"
#include "base/json_fields.h"

namespace runnel {
namespace {

constexpr JsonLimits kLimits = {.bytes = 4096, .values = 32, .depth = 2};
constexpr int64_t kMost = 1'000'000;

constexpr std::array<std::pair<const char*, int64_t LayerCosts::*>, 9> kCosts = {{
    {"meeting", &LayerCosts::meeting},
    {"alone", &LayerCosts::alone},
    {"wait", &LayerCosts::wait},
    {"norm", &LayerCosts::norm},
    {"product", &LayerCosts::product},
    {"cache_block", &LayerCosts::cache_block},
    {"cache", &LayerCosts::cache},
    {"memory_block", &LayerCosts::memory_block},
    {"memory", &LayerCosts::memory},
}};

}  // namespace

Result<LayerCosts> read_layer_costs(const std::string& path) {
  const Result<std::string> text = read_file(path, kLimits.bytes);
  if (!text.ok()) return text.status();
  const Result<Json> json = parse_json(*text, path, kLimits);
  if (!json.ok()) return json.status();
  Faults faults(path);
  std::array<const char*, kCosts.size()> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = kCosts[i].first;
  const Fields fields(faults, &*json, "", keys);
  LayerCosts costs;
  for (const auto& [key, cost] : kCosts) {
    if (fields.find(key) != nullptr) costs.*cost = fields.integer(key, 1, kMost);
  }
  if (!faults.ok()) return faults.status();
  return costs;
}

}  // namespace runnel
