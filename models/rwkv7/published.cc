#include "models/rwkv7/published.h"

#include <cmath>
#include <string>

#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr float kFusedKeyEps = 1e-6F;
constexpr int kHeadSize = 64;
constexpr float kFfnRatio = 4.0F;
constexpr int kFfnMultiple = 32;

// The sizes of low rank: those of the tensors, in which `in` is the dimension that is not the rank.
// The first layer's v1 is not read and may be missing.
Rwkv7Ranks ranks_of(const PublishedModel& model, const Rwkv7Spec& sizes) {
  const size_t dimension = sizes.names == Rwkv7Names::kOfficial ? 1 : 0;
  const auto rank = [&](int layer, const char* name) {
    const std::string official = "blocks." + std::to_string(layer) + ".att." + name;
    return model.size(name_in_file(sizes.names, official), dimension, kMaxWidth);
  };
  return {.decay = rank(0, "w1"),
          .rate = rank(0, "a1"),
          .value = sizes.layers > 1 ? rank(1, "v1") : 1,
          .gate = rank(0, "g1")};
}

// How many layers the tensors are of.
int layers_of(const PublishedModel& model) {
  int layers = 0;
  while (layers < kMaxLayers && model.has("blocks." + std::to_string(layers) + ".ffn.key.weight")) {
    ++layers;
  }
  return layers;
}

void read_official(const PublishedModel& model, Rwkv7Spec& sizes, Spec& spec) {
  sizes.table_rows = model.read_vocabulary("emb.weight", std::nullopt, spec);
  sizes.width = model.size("emb.weight", 1, kMaxWidth);
  sizes.layers = layers_of(model);
  sizes.heads = model.size("blocks.0.att.r_k", 0, sizes.width);
  sizes.value_width = model.size("blocks.0.att.value.weight", 0, kMaxWidth);
  sizes.ffn = model.size("blocks.0.ffn.key.weight", 0, kMaxWidth);
  sizes.input_norm = model.has("blocks.0.ln0.weight");
  sizes.tied = !model.has("head.weight");
}

// Of all layers one number; a list holds one for each.
int value_width_of(const PublishedConfig& config, const Rwkv7Spec& sizes) {
  const Json* const found = config.find("value_dim");
  if (found == nullptr) return sizes.width;
  if (!found->is_array()) return config.integer_or("value_dim", sizes.width, 1, kMaxWidth);
  for (const Json& item : *found) {
    if (item.is_number_unsigned() && item == found->front() && item <= kMaxWidth && item > 0) {
      continue;
    }
    config.faults().add("value_dim", "the same size in every layer", printable(json_text(*found)));
    return sizes.width;
  }
  return found->empty() ? sizes.width : found->front().get<int>();
}

int ffn_of(const PublishedConfig& config, const Rwkv7Spec& sizes) {
  const auto ratio = config.number_or("hidden_ratio", kFfnRatio, 0.001F, kMaxWidth);
  const float usual = std::ceil(static_cast<float>(sizes.width) * ratio / kFfnMultiple);
  const auto bounded = std::min<float>(usual * kFfnMultiple, kMaxWidth);
  return config.integer_or("intermediate_size", static_cast<int>(bounded), 1, kMaxWidth);
}

void refuse_options(const PublishedConfig& config) {
  config.allow_nothing("attn", "attention in some of the layers");
  config.allow("hidden_act", {"sqrelu"});
}

void read_fla(const PublishedModel& model, Rwkv7Spec& sizes, Spec& spec) {
  const PublishedConfig& config = model.config;
  refuse_options(config);
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  sizes.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  const int head_size = config.integer_or("head_dim", kHeadSize, 1, kMaxWidth);
  sizes.heads = config.integer_or("num_heads", sizes.width / head_size, 1, kMaxWidth);
  if (sizes.heads * int64_t{head_size} != sizes.width) {
    config.faults().add("num_heads", "hidden_size / head_dim, a whole number",
                        std::to_string(sizes.width) + " / " + std::to_string(head_size));
  }
  sizes.value_width = value_width_of(config, sizes);
  sizes.ffn = ffn_of(config, sizes);
  sizes.names = model.has("model.layers.0.attn.x_x") ? Rwkv7Names::kFlaX : Rwkv7Names::kFla;
  sizes.input_norm = config.boolean_or("norm_first", true);
  sizes.norm_bias = config.boolean_or("norm_bias", true);
  sizes.norm_eps = config.number_or("norm_eps", sizes.norm_eps, 0.0F, 1.0F);
  sizes.head_norm_eps = static_cast<float>(head_size) * sizes.norm_eps;
  sizes.key_eps = config.boolean_or("fuse_norm", true) ? kFusedKeyEps : 0.0F;
  sizes.table_rows = model.read_vocabulary("model.embeddings.weight",
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
  // A file without a head means the embedding, unless the config says that there is one.
  const bool says_untied = config.find("tie_word_embeddings") != nullptr &&
                           !config.boolean_or("tie_word_embeddings", false);
  sizes.tied = !model.has("lm_head.weight") && !says_untied;
}

}  // namespace

void read_published_rwkv7(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Rwkv7Spec>();
  if (model.has("emb.weight")) {
    read_official(model, sizes, spec);
  } else {
    read_fla(model, sizes, spec);
  }
  sizes.ranks = ranks_of(model, sizes);
}

}  // namespace runnel
