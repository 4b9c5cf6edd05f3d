#include "models/mamba1/config.h"

#include "models/config_keys.h"

namespace runnel {
namespace {

constexpr auto kKeys = [](auto& sizes, auto& keys) {
  keys.size("layers", sizes.layers, 1, kMaxLayers);
  keys.size("width", sizes.width);
  keys.size("inner", sizes.inner);
  keys.size("state_size", sizes.state_size);
  keys.size("rank", sizes.rank);
  keys.size("taps", sizes.taps, 2, kMaxTaps);
  keys.on("bias", sizes.bias);
  keys.on("convolution_bias", sizes.convolution_bias);
  keys.eps("norm_eps", sizes.norm_eps);
  keys.eps("mixer_eps", sizes.mixer_eps, sizes.mixer_eps > 0.0F);
  keys.on("tied", sizes.tied);
  keys.rows("table_rows", sizes.table_rows);
  // Absent if false, because state files hold a digest of this JSON.
  keys.on("state_spaces_names", sizes.state_spaces_names, sizes.state_spaces_names);
};

}  // namespace

void read_mamba1(const Fields& root, Faults& /*faults*/, Spec& spec) {
  read_keys<Mamba1Spec>(kKeys, root, spec);
}

OrderedJson model_to_json(const Mamba1Spec& sizes, const Spec& /*spec*/) {
  return write_keys(kKeys, sizes);
}

}  // namespace runnel
