#include "models/mamba2/config.h"

#include <array>
#include <cmath>
#include <string>

#include "base/text.h"
#include "models/config_keys.h"

namespace runnel {
namespace {

constexpr std::array kNames = {Choice{"hugging_face", Mamba2Names::kHuggingFace},
                               Choice{"state_spaces", Mamba2Names::kStateSpaces},
                               Choice{"gguf", Mamba2Names::kGguf}};

void check_product(const char* key, int factor, const char* other, int size, Faults& faults) {
  const int64_t all = int64_t{factor} * size;
  if (all <= kMaxWidth) return;
  faults.add(key, std::string(other) + " times this to be at most " + std::to_string(kMaxWidth),
             std::to_string(factor) + " * " + std::to_string(size) + " = " + std::to_string(all));
}

// Checks that sizes match, after each of them has been checked by itself.
void check_sizes(const Mamba2Spec& sizes, Faults& faults) {
  check_product("model.head_size", sizes.heads, "model.heads", sizes.head_size, faults);
  check_product("model.state_size", sizes.groups, "model.groups", sizes.state_size, faults);
  if (sizes.heads % sizes.groups != 0) {
    faults.add("model.heads", "a multiple of " + std::to_string(sizes.groups) + " (model.groups)",
               std::to_string(sizes.heads));
  }
  check_time_step_limit(sizes.dt_least, sizes.dt_most, faults);
}

constexpr auto kKeys = [](auto& sizes, auto& keys) {
  keys.choice("names", sizes.names, kNames);
  keys.size("layers", sizes.layers, 1, kMaxLayers);
  keys.size("width", sizes.width);
  keys.size("heads", sizes.heads);
  keys.size("head_size", sizes.head_size);
  keys.size("state_size", sizes.state_size);
  keys.size("groups", sizes.groups);
  keys.size("taps", sizes.taps, 2, kMaxTaps);
  keys.on("bias", sizes.bias);
  keys.on("convolution_bias", sizes.convolution_bias);
  keys.on("norm_before_gate", sizes.norm_before_gate);
  keys.eps("norm_eps", sizes.norm_eps);
  keys.number("dt_least", sizes.dt_least, kMaxTimeStep, sizes.dt_least > 0.0F);
  keys.number("dt_most", sizes.dt_most, kMaxTimeStep, std::isfinite(sizes.dt_most));
  keys.on("tied", sizes.tied);
  keys.rows("table_rows", sizes.table_rows);
};

}  // namespace

void check_time_step_limit(float least, float most, Faults& faults) {
  if (least <= most) return;
  faults.add("model.dt_least", "at most " + number_text(most) + " (model.dt_most)",
             number_text(least));
}

void read_mamba2(const Fields& root, Faults& faults, Spec& spec) {
  const auto& sizes = read_keys<Mamba2Spec>(kKeys, root, spec);
  if (faults.ok()) check_sizes(sizes, faults);
}

OrderedJson model_to_json(const Mamba2Spec& sizes, const Spec& /*spec*/) {
  return write_keys(kKeys, sizes);
}

}  // namespace runnel
