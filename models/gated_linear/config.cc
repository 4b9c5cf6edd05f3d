#include "models/gated_linear/config.h"

#include <array>
#include <string>

#include "models/config_keys.h"

namespace runnel {
namespace {

constexpr std::array kMaps = {
    Choice{"none", Activation::kNone},       Choice{"relu", Activation::kRelu},
    Choice{"elu", Activation::kElu},         Choice{"silu", Activation::kSilu},
    Choice{"sigmoid", Activation::kSigmoid}, Choice{"squared_relu", Activation::kSquaredRelu},
};
constexpr std::array kKeyNorms = {
    Choice{"none", KeyNorm::kNone},
    Choice{"l2", KeyNorm::kL2},
    Choice{"sum", KeyNorm::kSum},
};
constexpr float kMaxDecayLimit = 1e9F;

constexpr auto kKeys = [](auto& sizes, auto& keys) {
  keys.choice("mixer", sizes.mixer, kGatedMixers);
  keys.size("layers", sizes.layers, 1, kMaxLayers);
  keys.size("width", sizes.width);
  keys.size("heads", sizes.heads);
  keys.size("key_heads", sizes.key_heads);
  keys.size("key_size", sizes.dk);
  keys.size("value_size", sizes.dv);
  keys.size("ffn", sizes.ffn);
  keys.size("taps", sizes.taps, 0, kMaxTaps);
  keys.size("decay_rank", sizes.decay_rank, 0);
  keys.size("gate_rank", sizes.gate_rank, 0);
  keys.choice("map", sizes.map, kMaps);
  keys.choice("key_norm", sizes.key_norm, kKeyNorms);
  keys.on("convolution_bias", sizes.convolution_bias);
  keys.on("gate", sizes.gate);
  keys.on("beta", sizes.beta);
  keys.on("negative", sizes.negative);
  keys.on("gate_in_norm_name", sizes.gate_in_norm_name);
  keys.on("joined_ffn", sizes.joined_ffn);
  keys.on("tied", sizes.tied);
  keys.eps("norm_eps", sizes.norm_eps);
  keys.number("decay_limit", sizes.decay_limit, kMaxDecayLimit, sizes.decay_limit > 0.0F);
  keys.rows("table_rows", sizes.table_rows);
};

}  // namespace

void check_sizes(const GatedLinearSpec& sizes, const GatedLinearKeys& keys, Faults& faults) {
  const auto want = [&](bool holds, const char* key, const char* what, const std::string& found) {
    if (!holds) faults.add(key, what, found);
  };
  const auto heads_of = [&](int size) {
    return std::to_string(sizes.heads) + " heads of " + std::to_string(size);
  };
  want(sizes.heads % sizes.key_heads == 0, keys.key_heads,
       "numbers of heads of which one divides the other",
       std::to_string(sizes.heads) + " and " + std::to_string(sizes.key_heads));
  const auto fits = [&](int size) { return int64_t{sizes.heads} * size <= kMaxWidth; };
  want(fits(sizes.dk), keys.dk, "heads that are together at most 16384 wide", heads_of(sizes.dk));
  want(fits(sizes.dv), keys.dv, "heads that are together at most 16384 wide", heads_of(sizes.dv));
  want(sizes.taps != 1, keys.taps, "a convolution of 2 to 16 inputs", "1");
  want(!sizes.rotates() || sizes.dk % 2 == 0, keys.dk, "heads with an even number of key channels",
       heads_of(sizes.dk));
  const bool hgrn2 = sizes.mixer == GatedMixer::kHgrn2;
  want(!hgrn2 || (int64_t{sizes.heads} * sizes.dk == sizes.width && sizes.heads == sizes.key_heads),
       keys.heads, "heads whose keys are together as wide as the model", heads_of(sizes.dk));
  const bool kda = sizes.mixer == GatedMixer::kKda;
  want((sizes.decay_rank > 0) == (kda || sizes.mixer == GatedMixer::kGla), keys.mixer,
       "a decay_rank above 0 for gla and kda, and 0 for others", std::to_string(sizes.decay_rank));
  want((sizes.gate_rank > 0) == kda, keys.mixer, "a gate_rank above 0 for kda, and 0 for others",
       std::to_string(sizes.gate_rank));
}

void read_gated_linear(const Fields& root, Faults& faults, Spec& spec) {
  const auto& sizes = read_keys<GatedLinearSpec>(kKeys, root, spec);
  if (!faults.ok()) return;
  check_sizes(sizes,
              {"model.heads", "model.key_heads", "model.key_size", "model.value_size", "model.taps",
               "model.mixer"},
              faults);
}

OrderedJson model_to_json(const GatedLinearSpec& sizes, const Spec& /*spec*/) {
  return write_keys(kKeys, sizes);
}

}  // namespace runnel
