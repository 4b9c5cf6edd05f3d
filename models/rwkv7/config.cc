#include "models/rwkv7/config.h"

#include <array>
#include <string>

#include "models/config_keys.h"

namespace runnel {
namespace {

constexpr std::array kNames = {Choice{"official", Rwkv7Names::kOfficial},
                               Choice{"fla", Rwkv7Names::kFla}, Choice{"fla_x", Rwkv7Names::kFlaX},
                               Choice{"gguf", Rwkv7Names::kGguf}};

void check_heads(const char* key, int width, const Rwkv7Spec& sizes, Faults& faults) {
  if (width % sizes.heads == 0) return;
  faults.add(key, "a multiple of " + std::to_string(sizes.heads) + " (model.heads)",
             std::to_string(width));
}

constexpr auto kKeys = [](auto& sizes, auto& keys) {
  keys.choice("names", sizes.names, kNames);
  keys.size("layers", sizes.layers, 1, kMaxLayers);
  keys.size("width", sizes.width);
  keys.size("heads", sizes.heads);
  keys.size("value_width", sizes.value_width);
  keys.size("ffn", sizes.ffn);
  keys.object("ranks", [&](auto& ranks) {
    ranks.size("decay", sizes.ranks.decay);
    ranks.size("rate", sizes.ranks.rate);
    ranks.size("value", sizes.ranks.value);
    ranks.size("gate", sizes.ranks.gate);
  });
  keys.on("input_norm", sizes.input_norm);
  keys.on("norm_bias", sizes.norm_bias);
  keys.eps("norm_eps", sizes.norm_eps);
  keys.eps("head_norm_eps", sizes.head_norm_eps);
  keys.eps("key_eps", sizes.key_eps, sizes.key_eps > 0.0F);
  keys.on("tied", sizes.tied);
  keys.rows("table_rows", sizes.table_rows);
};

}  // namespace

void read_rwkv7(const Fields& root, Faults& faults, Spec& spec) {
  const auto& sizes = read_keys<Rwkv7Spec>(kKeys, root, spec);
  if (!faults.ok()) return;
  check_heads("model.width", sizes.width, sizes, faults);
  check_heads("model.value_width", sizes.value_width, sizes, faults);
}

OrderedJson model_to_json(const Rwkv7Spec& sizes, const Spec& /*spec*/) {
  return write_keys(kKeys, sizes);
}

}  // namespace runnel
