#include "models/rwkv7/published.h"

#include <algorithm>
#include <string>

#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr float kFusedKeyEps = 1e-6F;
constexpr int kHeadSize = 64;
constexpr double kFfnRatio = 4.0;
constexpr int64_t kFfnMultiple = 32;

// The ranks, from the sizes of the tensors. `dimension` is the dimension that is the rank. The
// first layer's v1 is not read and may be missing.
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

// The number of layers that have tensors.
int layers_of(const PublishedModel& model) {
  int layers = 0;
  while (layers < kMaxLayers && model.has("blocks." + std::to_string(layers) + ".ffn.key.weight")) {
    ++layers;
  }
  return layers;
}

// Checks that `found`, a size of that tensor, divides evenly among the heads.
void check_heads(const PublishedModel& model, const char* tensor, const char* size, int found,
                 const Rwkv7Spec& sizes) {
  if (found % sizes.heads == 0) return;
  model.config.faults().add("",
                            std::string("tensor ") + quote(tensor) + " in " + model.weights +
                                ", whose size " + size + " is a multiple of " +
                                std::to_string(sizes.heads) + ", the rows of 'blocks.0.att.r_k'",
                            std::to_string(found));
}

void read_official(const PublishedModel& model, Rwkv7Spec& sizes, Spec& spec) {
  sizes.table_rows = model.read_vocabulary("emb.weight", std::nullopt, spec);
  sizes.width = model.size("emb.weight", 1, kMaxWidth);
  sizes.layers = layers_of(model);
  sizes.heads = model.size("blocks.0.att.r_k", 0, sizes.width);
  sizes.value_width = model.size("blocks.0.att.value.weight", 0, kMaxWidth);
  check_heads(model, "emb.weight", "1", sizes.width, sizes);
  check_heads(model, "blocks.0.att.value.weight", "0", sizes.value_width, sizes);
  sizes.ffn = model.size("blocks.0.ffn.key.weight", 0, kMaxWidth);
  sizes.input_norm = model.has("blocks.0.ln0.weight");
  sizes.tied = !model.has("head.weight");
}

// The width must be the same in all layers. A list holds one width per layer.
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
  const double ratio = config.number_or("hidden_ratio", kFfnRatio, 0.001, kMaxWidth);
  const auto product = static_cast<int64_t>(sizes.width * ratio);
  const int64_t usual = (product + kFfnMultiple - 1) / kFfnMultiple * kFfnMultiple;
  return config.integer_or("intermediate_size", static_cast<int>(std::min(usual, kMaxWidth)), 1,
                           kMaxWidth);
}

// num_heads counts only if head_dim is absent: flash-linear-attention's converter leaves num_heads
// at the default for another width.
int head_size_of(const PublishedConfig& config, int width) {
  const bool is_given = config.find("head_dim") != nullptr || config.find("num_heads") == nullptr;
  return is_given ? config.integer_or("head_dim", kHeadSize, 1, kMaxWidth)
                  : width / config.integer_or("num_heads", 1, 1, width);
}

void read_heads(const PublishedConfig& config, Rwkv7Spec& sizes) {
  const int head_size = head_size_of(config, sizes.width);
  sizes.heads = std::max(sizes.width / head_size, 1);
  if (sizes.width % head_size != 0) {
    config.faults().add("head_dim",
                        "a size that divides hidden_size, " + std::to_string(sizes.width),
                        std::to_string(head_size));
  }
  sizes.value_width = value_width_of(config, sizes);
  if (sizes.value_width % sizes.heads != 0) {
    config.faults().add("value_dim", "a multiple of the " + std::to_string(sizes.heads) + " heads",
                        std::to_string(sizes.value_width));
  }
  sizes.norm_eps = config.eps_or("norm_eps", sizes.norm_eps, 1.0F / static_cast<float>(head_size));
  sizes.head_norm_eps = std::min(static_cast<float>(head_size) * sizes.norm_eps, 1.0F);
}

void refuse_options(const PublishedConfig& config) {
  config.refuse_attention("attn");
  config.allow("elementwise_affine", true);
  config.allow("hidden_act", {"sqrelu"});
}

void read_fla(const PublishedModel& model, Rwkv7Spec& sizes, Spec& spec) {
  const PublishedConfig& config = model.config;
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  sizes.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  read_heads(config, sizes);
  sizes.ffn = ffn_of(config, sizes);
  sizes.names = model.has("model.layers.0.attn.x_x") ? Rwkv7Names::kFlaX : Rwkv7Names::kFla;
  sizes.input_norm = config.boolean_or("norm_first", true);
  sizes.norm_bias = config.boolean_or("norm_bias", true);
  sizes.key_eps = config.boolean_or("fuse_norm", true) ? kFusedKeyEps : 0.0F;
  sizes.table_rows = model.read_vocabulary("model.embeddings.weight",
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
  // A file without a head is tied to the embedding, unless the config says otherwise.
  const bool says_untied = config.find("tie_word_embeddings") != nullptr &&
                           !config.boolean_or("tie_word_embeddings", false);
  sizes.tied = !model.has("lm_head.weight") && !says_untied;
}

}  // namespace

void read_published_rwkv7(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Rwkv7Spec>();
  refuse_options(model.config);
  if (model.has("emb.weight")) {
    read_official(model, sizes, spec);
  } else {
    read_fla(model, sizes, spec);
  }
  sizes.ranks = ranks_of(model, sizes);
}

}  // namespace runnel
