#include "models/rwkv6/config.h"

#include <array>
#include <string>

#include "models/config_keys.h"

namespace runnel {
namespace {

constexpr std::array kVersions = {Choice{"6", Rwkv6Version::kSix},
                                  Choice{"5.2", Rwkv6Version::kFive}};

constexpr auto kKeys = [](auto& sizes, auto& keys) {
  keys.choice("version", sizes.version, kVersions);
  keys.size("layers", sizes.layers, 1, kMaxLayers);
  keys.size("width", sizes.width);
  keys.size("heads", sizes.heads);
  keys.size("ffn", sizes.ffn);
  if (sizes.is_six()) {
    keys.size("mix_rank", sizes.mix_rank);
    keys.size("decay_rank", sizes.decay_rank);
  }
  keys.eps("norm_eps", sizes.norm_eps);
  keys.eps("head_norm_eps", sizes.head_norm_eps);
  keys.rows("table_rows", sizes.table_rows);
};

}  // namespace

void read_rwkv6(const Fields& root, Faults& faults, Spec& spec) {
  const auto& sizes = read_keys<Rwkv6Spec>(kKeys, root, spec);
  if (!faults.ok() || sizes.width % sizes.heads == 0) return;
  faults.add("model.width", "a multiple of " + std::to_string(sizes.heads) + " (model.heads)",
             std::to_string(sizes.width));
}

OrderedJson model_to_json(const Rwkv6Spec& sizes, const Spec& /*spec*/) {
  return write_keys(kKeys, sizes);
}

}  // namespace runnel
