#include "models/gated_linear/config.h"

#include <string>

#include "base/limits.h"

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

// Calls visit(key, member, least, largest) for every size.
template <typename Sizes, typename Visit>
void each_size(Sizes& sizes, const Visit& visit) {
  visit("layers", sizes.layers, 1, kMaxLayers);
  visit("width", sizes.width, 1, kMaxWidth);
  visit("heads", sizes.heads, 1, kMaxWidth);
  visit("key_heads", sizes.key_heads, 1, kMaxWidth);
  visit("key_size", sizes.dk, 1, kMaxWidth);
  visit("value_size", sizes.dv, 1, kMaxWidth);
  visit("ffn", sizes.ffn, 1, kMaxWidth);
  visit("taps", sizes.taps, 0, kMaxTaps);
  visit("decay_rank", sizes.decay_rank, 0, kMaxWidth);
  visit("gate_rank", sizes.gate_rank, 0, kMaxWidth);
}

// Calls visit(key, member) for every switch.
template <typename Sizes, typename Visit>
void each_switch(Sizes& sizes, const Visit& visit) {
  visit("convolution_bias", sizes.convolution_bias);
  visit("gate", sizes.gate);
  visit("beta", sizes.beta);
  visit("negative", sizes.negative);
  visit("gate_in_norm_name", sizes.gate_in_norm_name);
  visit("joined_ffn", sizes.joined_ffn);
  visit("tied", sizes.tied);
}

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
  auto& sizes = spec.model.emplace<GatedLinearSpec>();
  const Fields model = root.object(
      "model", {"family",           "mixer",      "layers",     "width",     "heads",
                "key_heads",        "key_size",   "value_size", "ffn",       "taps",
                "decay_rank",       "gate_rank",  "map",        "key_norm",  "gate",
                "convolution_bias", "beta",       "negative",   "norm_eps",  "gate_in_norm_name",
                "decay_limit",      "joined_ffn", "tied",       "table_rows"});
  sizes.mixer = model.choice("mixer", kGatedMixers);
  each_size(sizes, [&](const char* key, int& size, int64_t least, int64_t largest) {
    size = model.small(key, least, largest);
  });
  sizes.map = model.choice("map", kMaps);
  sizes.key_norm = model.choice("key_norm", kKeyNorms);
  each_switch(sizes, [&](const char* key, bool& on) { on = model.boolean(key, on); });
  sizes.norm_eps = model.eps("norm_eps", sizes.norm_eps);
  sizes.decay_limit = model.number("decay_limit", sizes.decay_limit, kMaxDecayLimit);
  sizes.table_rows = model.small("table_rows", spec.vocabulary, kMaxVocabulary);
  spec.head.values = spec.vocabulary;
  if (!faults.ok()) return;
  check_sizes(sizes,
              {"model.heads", "model.key_heads", "model.key_size", "model.value_size", "model.taps",
               "model.mixer"},
              faults);
}

OrderedJson model_to_json(const GatedLinearSpec& sizes, const Spec& /*spec*/) {
  OrderedJson model;
  model["mixer"] = name_of(kGatedMixers, sizes.mixer);
  each_size(sizes, [&](const char* key, int size, int64_t, int64_t) { model[key] = size; });
  model["map"] = name_of(kMaps, sizes.map);
  model["key_norm"] = name_of(kKeyNorms, sizes.key_norm);
  each_switch(sizes, [&](const char* key, bool on) { model[key] = on; });
  model["norm_eps"] = shortest(sizes.norm_eps);
  if (sizes.decay_limit > 0.0F) model["decay_limit"] = shortest(sizes.decay_limit);
  model["table_rows"] = sizes.table_rows;
  return model;
}

}  // namespace runnel
