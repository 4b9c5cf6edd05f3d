#include "models/rwkv7/config.h"

#include <array>
#include <string>

#include "base/limits.h"
#include "base/text.h"

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

}  // namespace

void read_rwkv7(const Fields& root, Faults& faults, Spec& spec) {
  auto& sizes = spec.model.emplace<Rwkv7Spec>();
  const Fields model =
      root.object("model", {"family", "names", "layers", "width", "heads", "value_width", "ffn",
                            "ranks", "input_norm", "norm_bias", "norm_eps", "head_norm_eps",
                            "key_eps", "tied", "table_rows"});
  sizes.names = model.choice("names", kNames);
  sizes.layers = model.small("layers", 1, kMaxLayers);
  sizes.width = model.small("width", 1, kMaxWidth);
  sizes.heads = model.small("heads", 1, kMaxWidth);
  sizes.value_width = model.small("value_width", 1, kMaxWidth);
  sizes.ffn = model.small("ffn", 1, kMaxWidth);
  const Fields ranks = model.object("ranks", {"decay", "rate", "value", "gate"});
  sizes.ranks = {ranks.small("decay", 1, kMaxWidth), ranks.small("rate", 1, kMaxWidth),
                 ranks.small("value", 1, kMaxWidth), ranks.small("gate", 1, kMaxWidth)};
  sizes.input_norm = model.boolean("input_norm", sizes.input_norm);
  sizes.norm_bias = model.boolean("norm_bias", sizes.norm_bias);
  sizes.norm_eps = model.eps("norm_eps", sizes.norm_eps);
  sizes.head_norm_eps = model.eps("head_norm_eps", sizes.head_norm_eps);
  sizes.key_eps = model.eps("key_eps", sizes.key_eps);
  sizes.tied = model.boolean("tied", sizes.tied);
  sizes.table_rows = model.small("table_rows", spec.vocabulary, kMaxVocabulary);
  spec.head.values = spec.vocabulary;
  if (!faults.ok()) return;
  check_heads("model.width", sizes.width, sizes, faults);
  check_heads("model.value_width", sizes.value_width, sizes, faults);
}

OrderedJson model_to_json(const Rwkv7Spec& sizes, const Spec& /*spec*/) {
  OrderedJson model;
  model["names"] = name_of(kNames, sizes.names);
  model["layers"] = sizes.layers;
  model["width"] = sizes.width;
  model["heads"] = sizes.heads;
  model["value_width"] = sizes.value_width;
  model["ffn"] = sizes.ffn;
  model["ranks"]["decay"] = sizes.ranks.decay;
  model["ranks"]["rate"] = sizes.ranks.rate;
  model["ranks"]["value"] = sizes.ranks.value;
  model["ranks"]["gate"] = sizes.ranks.gate;
  model["input_norm"] = sizes.input_norm;
  model["norm_bias"] = sizes.norm_bias;
  model["norm_eps"] = shortest(sizes.norm_eps);
  model["head_norm_eps"] = shortest(sizes.head_norm_eps);
  if (sizes.key_eps > 0.0F) model["key_eps"] = shortest(sizes.key_eps);
  model["tied"] = sizes.tied;
  model["table_rows"] = sizes.table_rows;
  return model;
}

}  // namespace runnel
