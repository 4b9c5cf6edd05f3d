#include "models/mamba2/published.h"

#include <limits>
#include <string>

#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int kHeadSize = 64;
constexpr int kStateSize = 128;
constexpr int kExpand = 2;
constexpr int kTaps = 4;
constexpr int kMaxTaps = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// [least, most] of dt, where the key is there.
void read_limits(const PublishedConfig& config, const char* key, Mamba2Spec& sizes) {
  const Json* const found = config.find(key);
  if (found == nullptr) return;
  const Json ends = found->is_array() && found->size() == 2
                        ? Json{{"least", (*found)[0]}, {"most", (*found)[1]}}
                        : Json::object();
  const PublishedConfig limits(config.faults(), &ends, config.path(key));
  sizes.dt_least = limits.number_or("least", 0.0F, 0.0F, std::numeric_limits<float>::max());
  sizes.dt_most = limits.number_or("most", kInfinity, 0.0F, kInfinity);
  if (ends.empty() || sizes.dt_least > sizes.dt_most) {
    config.faults().add(config.path(key), "two numbers, the least first",
                        printable(json_text(*found)));
  }
}

// heads * head_size is what the blocks expand the width to.
void check_inner(const PublishedConfig& config, int expand, const Mamba2Spec& sizes) {
  const int64_t inner = int64_t{expand} * sizes.width;
  if (sizes.heads * int64_t{sizes.head_size} == inner) return;
  config.faults().add(
      config.path("expand"),
      "heads of " + std::to_string(sizes.head_size) + " that are together " +
          std::to_string(expand) + " times as wide as the model",
      std::to_string(sizes.heads) + " heads and a width of " + std::to_string(sizes.width));
}

// Hugging Face's and flash-linear-attention's keys.
void read_hugging_face(const PublishedConfig& config, Mamba2Spec& sizes) {
  config.allow_nothing("attn", "attention in some of the layers");
  config.allow("hidden_act", {"silu", "swish"});
  for (const char* const key : {"rms_norm", "rmsnorm"}) config.allow(key, true);
  config.allow("D_has_hdim", false);
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  sizes.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  sizes.head_size = config.integer_or("head_dim", kHeadSize, 1, kMaxWidth);
  const int expand = config.integer_or("expand", kExpand, 1, kMaxWidth);
  const auto heads = static_cast<int>(int64_t{expand} * sizes.width / sizes.head_size);
  sizes.heads = config.integer_or("num_heads", heads, 1, kMaxWidth);
  check_inner(config, expand, sizes);
  sizes.state_size = config.integer_or("state_size", kStateSize, 1, kMaxWidth);
  sizes.groups = config.integer("n_groups", 1, kMaxWidth);
  sizes.taps = config.integer_or("conv_kernel", kTaps, 2, kMaxTaps);
  sizes.bias = config.boolean_or("use_bias", false);
  sizes.convolution_bias = config.boolean_or("use_conv_bias", true);
  for (const char* const key : {"layer_norm_epsilon", "norm_eps"}) {
    sizes.norm_eps = config.number_or(key, sizes.norm_eps, 0.0F, 1.0F);
  }
  for (const char* const key : {"time_step_limit", "dt_limit"}) read_limits(config, key, sizes);
}

// state-spaces' keys; those that are absent have the defaults of its code.
void read_state_spaces(const PublishedConfig& config, Mamba2Spec& sizes) {
  config.allow_nothing("attn_layer_idx", "attention in some of the layers");
  config.allow_nothing("attn_cfg", "attention in some of the layers");
  config.allow("rms_norm", true);
  config.integer_or("d_intermediate", 0, 0, 0);
  const PublishedConfig layer = config.object("ssm_cfg");
  if (layer.text_or("layer", "Mamba1") != "Mamba2") {
    config.faults().add(
        "ssm_cfg.layer", "'Mamba2', all that is implemented",
        layer.find("layer") == nullptr ? "no such key" : describe(*layer.find("layer")));
  }
  layer.allow("D_has_hdim", false);
  layer.allow("rmsnorm", true);
  layer.allow_nothing("d_ssm", "an ssm of part of the width");
  sizes.width = config.integer("d_model", 1, kMaxWidth);
  sizes.layers = config.integer("n_layer", 1, kMaxLayers);
  sizes.head_size = layer.integer_or("headdim", kHeadSize, 1, kMaxWidth);
  const int expand = layer.integer_or("expand", kExpand, 1, kMaxWidth);
  sizes.heads = static_cast<int>(int64_t{expand} * sizes.width / sizes.head_size);
  check_inner(layer, expand, sizes);
  sizes.state_size = layer.integer_or("d_state", kStateSize, 1, kMaxWidth);
  sizes.groups = layer.integer_or("ngroups", 1, 1, kMaxWidth);
  sizes.taps = layer.integer_or("d_conv", kTaps, 2, kMaxTaps);
  sizes.bias = layer.boolean_or("bias", false);
  sizes.convolution_bias = layer.boolean_or("conv_bias", true);
  sizes.norm_before_gate = layer.boolean_or("norm_before_gate", false);
  read_limits(layer, "dt_limit", sizes);
}

}  // namespace

void read_published_mamba2(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba2Spec>();
  const PublishedConfig& config = model.config;
  const bool is_state_spaces = config.find("ssm_cfg") != nullptr;
  if (is_state_spaces) {
    read_state_spaces(config, sizes);
  } else {
    read_hugging_face(config, sizes);
  }
  if (model.has("backbone.embedding.weight")) sizes.names = Mamba2Names::kStateSpaces;
  sizes.table_rows = model.read_vocabulary(embedding_name(sizes.names),
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
  // A file without a head means the embedding, unless the config says that there is one.
  const char* const key = is_state_spaces ? "tie_embeddings" : "tie_word_embeddings";
  sizes.tied = !model.has("lm_head.weight") && config.boolean_or(key, true);
}

}  // namespace runnel
