#include "models/mamba2/config.h"

#include <array>
#include <cmath>
#include <string>

#include "base/limits.h"
#include "base/text.h"

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

// Sizes that must fit one another, after each has been checked by itself.
void check_sizes(const Mamba2Spec& sizes, Faults& faults) {
  check_product("model.head_size", sizes.heads, "model.heads", sizes.head_size, faults);
  check_product("model.state_size", sizes.groups, "model.groups", sizes.state_size, faults);
  if (sizes.heads % sizes.groups != 0) {
    faults.add("model.heads", "a multiple of " + std::to_string(sizes.groups) + " (model.groups)",
               std::to_string(sizes.heads));
  }
  if (sizes.dt_least > sizes.dt_most) {
    faults.add("model.dt_least", "at most model.dt_most",
               std::to_string(sizes.dt_least) + " above " + std::to_string(sizes.dt_most));
  }
}

}  // namespace

void read_mamba2(const Fields& root, Faults& faults, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba2Spec>();
  const Fields model = root.object(
      "model", {"family", "names", "layers", "width", "heads", "head_size", "state_size", "groups",
                "taps", "bias", "convolution_bias", "norm_before_gate", "norm_eps", "dt_least",
                "dt_most", "tied", "table_rows"});
  sizes.names = model.choice("names", kNames);
  sizes.layers = model.small("layers", 1, kMaxLayers);
  sizes.width = model.small("width", 1, kMaxWidth);
  sizes.heads = model.small("heads", 1, kMaxWidth);
  sizes.head_size = model.small("head_size", 1, kMaxWidth);
  sizes.state_size = model.small("state_size", 1, kMaxWidth);
  sizes.groups = model.small("groups", 1, kMaxWidth);
  sizes.taps = model.small("taps", 2, kMaxTaps);
  sizes.bias = model.boolean("bias", sizes.bias);
  sizes.convolution_bias = model.boolean("convolution_bias", sizes.convolution_bias);
  sizes.norm_before_gate = model.boolean("norm_before_gate", sizes.norm_before_gate);
  sizes.norm_eps = model.eps("norm_eps", sizes.norm_eps);
  sizes.dt_least = model.number("dt_least", sizes.dt_least, kMaxTimeStep);
  sizes.dt_most = model.number("dt_most", sizes.dt_most, kMaxTimeStep);
  sizes.tied = model.boolean("tied", sizes.tied);
  sizes.table_rows = model.small("table_rows", spec.vocabulary, kMaxVocabulary);
  spec.head.values = spec.vocabulary;
  if (faults.ok()) check_sizes(sizes, faults);
}

OrderedJson model_to_json(const Mamba2Spec& sizes, const Spec& /*spec*/) {
  OrderedJson model;
  model["names"] = name_of(kNames, sizes.names);
  model["layers"] = sizes.layers;
  model["width"] = sizes.width;
  model["heads"] = sizes.heads;
  model["head_size"] = sizes.head_size;
  model["state_size"] = sizes.state_size;
  model["groups"] = sizes.groups;
  model["taps"] = sizes.taps;
  model["bias"] = sizes.bias;
  model["convolution_bias"] = sizes.convolution_bias;
  model["norm_before_gate"] = sizes.norm_before_gate;
  model["norm_eps"] = shortest(sizes.norm_eps);
  if (sizes.dt_least > 0.0F) model["dt_least"] = shortest(sizes.dt_least);
  if (std::isfinite(sizes.dt_most)) model["dt_most"] = shortest(sizes.dt_most);
  model["tied"] = sizes.tied;
  model["table_rows"] = sizes.table_rows;
  return model;
}

}  // namespace runnel
