#include "models/mamba1/config.h"

#include "base/limits.h"

namespace runnel {
void read_mamba1(const Fields& root, Faults& /*faults*/, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba1Spec>();
  const Fields model =
      root.object("model", {"family", "layers", "width", "inner", "state_size", "rank", "taps",
                            "bias", "convolution_bias", "norm_eps", "mixer_eps", "tied",
                            "table_rows", "state_spaces_names"});
  sizes.layers = model.small("layers", 1, kMaxLayers);
  sizes.width = model.small("width", 1, kMaxWidth);
  sizes.inner = model.small("inner", 1, kMaxWidth);
  sizes.state_size = model.small("state_size", 1, kMaxWidth);
  sizes.rank = model.small("rank", 1, kMaxWidth);
  sizes.taps = model.small("taps", 2, kMaxTaps);
  sizes.bias = model.boolean("bias", sizes.bias);
  sizes.convolution_bias = model.boolean("convolution_bias", sizes.convolution_bias);
  sizes.norm_eps = model.eps("norm_eps", sizes.norm_eps);
  sizes.mixer_eps = model.eps("mixer_eps", sizes.mixer_eps);
  sizes.tied = model.boolean("tied", sizes.tied);
  sizes.table_rows = model.small("table_rows", spec.vocabulary, kMaxVocabulary);
  sizes.state_spaces_names = model.boolean("state_spaces_names", false);
  spec.head.values = spec.vocabulary;
}

OrderedJson model_to_json(const Mamba1Spec& sizes, const Spec& /*spec*/) {
  OrderedJson model;
  model["layers"] = sizes.layers;
  model["width"] = sizes.width;
  model["inner"] = sizes.inner;
  model["state_size"] = sizes.state_size;
  model["rank"] = sizes.rank;
  model["taps"] = sizes.taps;
  model["bias"] = sizes.bias;
  model["convolution_bias"] = sizes.convolution_bias;
  model["norm_eps"] = shortest(sizes.norm_eps);
  if (sizes.mixer_eps > 0.0F) model["mixer_eps"] = shortest(sizes.mixer_eps);
  model["tied"] = sizes.tied;
  model["table_rows"] = sizes.table_rows;
  // Only where it differs: state files hold a digest of this.
  if (sizes.state_spaces_names) model["state_spaces_names"] = true;
  return model;
}

}  // namespace runnel
