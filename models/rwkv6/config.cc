#include "models/rwkv6/config.h"

#include <array>
#include <string>

#include "base/limits.h"

namespace runnel {
namespace {

constexpr std::array kVersions = {Choice{"6", Rwkv6Version::kSix},
                                  Choice{"5.2", Rwkv6Version::kFive}};

}  // namespace

void read_rwkv6(const Fields& root, Faults& faults, Spec& spec) {
  auto& sizes = spec.model.emplace<Rwkv6Spec>();
  const Fields model =
      root.object("model", {"family", "version", "layers", "width", "heads", "ffn", "mix_rank",
                            "decay_rank", "norm_eps", "head_norm_eps", "table_rows"});
  sizes.version = model.choice("version", kVersions);
  sizes.layers = model.small("layers", 1, kMaxLayers);
  sizes.width = model.small("width", 1, kMaxWidth);
  sizes.heads = model.small("heads", 1, kMaxWidth);
  sizes.ffn = model.small("ffn", 1, kMaxWidth);
  if (sizes.is_six()) {
    sizes.mix_rank = model.small("mix_rank", 1, kMaxWidth);
    sizes.decay_rank = model.small("decay_rank", 1, kMaxWidth);
  }
  sizes.norm_eps = model.eps("norm_eps", sizes.norm_eps);
  sizes.head_norm_eps = model.eps("head_norm_eps", sizes.head_norm_eps);
  sizes.table_rows = model.small("table_rows", spec.vocabulary, kMaxVocabulary);
  spec.head.values = spec.vocabulary;
  if (!faults.ok() || sizes.width % sizes.heads == 0) return;
  faults.add("model.width", "a multiple of " + std::to_string(sizes.heads) + " (model.heads)",
             std::to_string(sizes.width));
}

OrderedJson model_to_json(const Rwkv6Spec& sizes, const Spec& /*spec*/) {
  OrderedJson model;
  model["version"] = name_of(kVersions, sizes.version);
  model["layers"] = sizes.layers;
  model["width"] = sizes.width;
  model["heads"] = sizes.heads;
  model["ffn"] = sizes.ffn;
  if (sizes.is_six()) {
    model["mix_rank"] = sizes.mix_rank;
    model["decay_rank"] = sizes.decay_rank;
  }
  model["norm_eps"] = shortest(sizes.norm_eps);
  model["head_norm_eps"] = shortest(sizes.head_norm_eps);
  model["table_rows"] = sizes.table_rows;
  return model;
}

}  // namespace runnel
