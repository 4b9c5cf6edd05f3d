#include "models/gated_linear/published.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/limits.h"
#include "base/text.h"
#include "models/gated_linear/config.h"

namespace runnel {
namespace {

constexpr int kTaps = 4;
constexpr int kFfnMultiple = 256;
constexpr double kLargestDecayLimit = 1e9;
constexpr double kLargestRatio = 1024.0;
constexpr const char* kLayer = "model.layers.0.";

constexpr std::array kPublishedMaps = {
    Choice{"identity", Activation::kNone},     Choice{"relu", Activation::kRelu},
    Choice{"elu", Activation::kElu},           Choice{"silu", Activation::kSilu},
    Choice{"swish", Activation::kSilu},        Choice{"sigmoid", Activation::kSigmoid},
    Choice{"sqrelu", Activation::kSquaredRelu}};

GatedMixer mixer_of(const PublishedConfig& config) {
  const std::string type = config.text_or("model_type", kGatedMixers[0].name);
  for (const auto& one : kGatedMixers) {
    if (type == one.name) return one.value;
  }
  return kGatedMixers[0].value;
}

Activation map_of(const PublishedConfig& config, const char* key, const char* fallback) {
  const std::string found = config.text_or(key, fallback);
  std::vector<std::string_view> names;
  for (const auto& one : kPublishedMaps) {
    if (found == one.name) return one.value;
    names.emplace_back(one.name);
  }
  config.faults().add(config.path(key), quoted_choices(names), quote(found));
  return Activation::kNone;
}

// The size of a head, if all heads together are `ratio` times as wide as the model.
int head_size_of(const PublishedConfig& config, const char* key, double fallback, int heads,
                 int width) {
  const double ratio = config.number_or(key, fallback, 1.0 / kMaxWidth, kLargestRatio);
  const auto all = static_cast<int64_t>(width * ratio);
  if (all >= heads && all % heads == 0 && all <= kMaxWidth) return static_cast<int>(all / heads);
  config.faults().add(config.path(key),
                      "a ratio whose product with hidden_size is at most 16384 and a multiple of "
                      "the " +
                          std::to_string(heads) + " heads",
                      std::to_string(all));
  return 1;
}

int taps_of(const PublishedConfig& config, bool by_default) {
  if (!config.boolean_or("use_short_conv", by_default)) return 0;
  return config.integer_or("conv_size", kTaps, 2, kMaxTaps);
}

int ffn_of(const PublishedConfig& config, int width, double ratio) {
  ratio = config.number_or("hidden_ratio", ratio, 0.001, kLargestRatio);
  const auto product = static_cast<int64_t>(width * ratio * 2 / 3);
  const int64_t usual = (product + kFfnMultiple - 1) / kFfnMultiple * kFfnMultiple;
  return config.integer_or("intermediate_size",
                           static_cast<int>(std::clamp<int64_t>(usual, 1, kMaxWidth)), 1,
                           kMaxWidth);
}

// GLA and RetNet.
void read_gla(const PublishedModel& model, GatedLinearSpec& sizes) {
  const PublishedConfig& config = model.config;
  const bool gla = sizes.mixer == GatedMixer::kGla;
  sizes.heads = config.integer_or("num_heads", gla ? 4 : 8, 1, kMaxWidth);
  sizes.key_heads = config.integer_or("num_kv_heads", sizes.heads, 1, kMaxWidth);
  sizes.dk = head_size_of(config, "expand_k", gla ? 0.5 : 1.0, sizes.heads, sizes.width);
  sizes.dv = head_size_of(config, "expand_v", gla ? 1.0 : 2.0, sizes.heads, sizes.width);
  sizes.map = map_of(config, "feature_map", "identity");
  sizes.gate = config.boolean_or("use_output_gate", true);
  sizes.gate_in_norm_name = model.has(std::string(kLayer) + "attn.g_norm_swish_gate.weight");
  if (!gla) return;  // RetNet's code ignores use_short_conv
  sizes.taps = taps_of(config, false);
  config.allow("use_gk", true);
  config.allow("use_gv", false);
  sizes.decay_limit =
      static_cast<float>(-config.number_or("clamp_min", 0.0, -kLargestDecayLimit, 0.0));
  if (config.find("clamp_min") != nullptr && sizes.decay_limit == 0.0F) {
    config.faults().add("clamp_min", "a number below 0", describe(*config.find("clamp_min")));
  }
  sizes.decay_rank = model.size(std::string(kLayer) + "attn.gk_proj.0.weight", 0, kMaxWidth);
}

void read_delta_net(const PublishedConfig& config, GatedLinearSpec& sizes) {
  sizes.heads = sizes.key_heads = config.integer_or("num_heads", 16, 1, kMaxWidth);
  sizes.dk = head_size_of(config, "expand_k", 1.0, sizes.heads, sizes.width);
  sizes.dv = head_size_of(config, "expand_v", 1.0, sizes.heads, sizes.width);
  sizes.gate = config.boolean_or("use_gate", false);
  sizes.beta = config.boolean_or("use_beta", true);
  config.allow("use_output_norm", true);
  config.allow("qk_norm", {"l2", "sum"});
  config.allow("qk_activation", {"silu", "relu", "elu", "identity"});
  if (config.text_or("qk_norm", "l2") == "sum") sizes.key_norm = KeyNorm::kSum;
  sizes.map = map_of(config, "qk_activation", "silu");
}

// Gated DeltaNet and KDA.
void read_gated_delta(const PublishedModel& model, GatedLinearSpec& sizes) {
  const PublishedConfig& config = model.config;
  const bool kda = sizes.mixer == GatedMixer::kKda;
  sizes.key_heads = config.integer_or("num_heads", kda ? 16 : 6, 1, kMaxWidth);
  sizes.heads = config.integer_or("num_v_heads", sizes.key_heads, 1, kMaxWidth);
  sizes.dk = config.integer_or("head_dim", kda ? 128 : 256, 1, kMaxWidth);
  sizes.dv = head_size_of(config, "expand_v", kda ? 1.0 : 2.0, 1, sizes.dk);
  sizes.map = Activation::kSilu;
  if (!kda) {
    sizes.gate = config.boolean_or("use_gate", true);
    return;
  }
  config.allow("safe_gate", false);
  config.allow_nothing("lower_bound", "a lower bound of the decay");
  sizes.decay_rank = model.size(std::string(kLayer) + "attn.f_proj.0.weight", 0, kMaxWidth);
  sizes.gate_rank = model.size(std::string(kLayer) + "attn.g_proj.0.weight", 0, kMaxWidth);
}

void read_hgrn2(const PublishedConfig& config, GatedLinearSpec& sizes) {
  sizes.dk = config.integer_or("expand_ratio", 128, 1, kMaxWidth);
  sizes.heads = sizes.key_heads =
      config.integer_or("num_heads", std::max(sizes.width / sizes.dk, 1), 1, kMaxWidth);
  sizes.dv = std::max(sizes.width / sizes.heads, 1);
  sizes.map = Activation::kSilu;  // of q alone: k follows from the decay
  sizes.gate = false;
  sizes.taps = taps_of(config, false);
  config.allow("use_lower_bound", true);
}

void read_mixer(const PublishedModel& model, GatedLinearSpec& sizes) {
  const PublishedConfig& config = model.config;
  switch (sizes.mixer) {
    case GatedMixer::kGla:
    case GatedMixer::kRetNet:
      return read_gla(model, sizes);
    case GatedMixer::kHgrn2:
      return read_hgrn2(config, sizes);
    case GatedMixer::kDeltaNet:
      read_delta_net(config, sizes);
      break;
    case GatedMixer::kGatedDeltaNet:
    case GatedMixer::kKda:
      read_gated_delta(model, sizes);
      break;
  }
  sizes.taps = taps_of(config, true);
  sizes.negative = config.boolean_or("allow_neg_eigval", false);
  if (sizes.key_norm == KeyNorm::kNone) sizes.key_norm = KeyNorm::kL2;
}

GatedLinearKeys keys_of(GatedMixer mixer) {
  switch (mixer) {
    case GatedMixer::kGatedDeltaNet:
    case GatedMixer::kKda:
      return {"num_heads", "num_v_heads", "head_dim", "expand_v", "conv_size", "model_type"};
    case GatedMixer::kHgrn2:
      return {"expand_ratio", "num_heads", "expand_ratio", "num_heads", "conv_size", "model_type"};
    default:
      return {"num_heads", "num_kv_heads", "expand_k", "expand_v", "conv_size", "model_type"};
  }
}

void refuse_options(const PublishedConfig& config) {
  config.refuse_attention("attn");
  config.allow_nothing("attnres_block_size", "attention to blocks of layers");
  config.allow("hidden_act", {"swish", "silu"});
  config.allow("elementwise_affine", true);
}

}  // namespace

void read_published_gated_linear(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<GatedLinearSpec>();
  const PublishedConfig& config = model.config;
  refuse_options(config);
  sizes.mixer = mixer_of(config);
  sizes.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  sizes.ffn = ffn_of(config, sizes.width, sizes.mixer == GatedMixer::kRetNet ? 2.0 : 4.0);
  sizes.norm_eps = config.eps_or("norm_eps", sizes.norm_eps);
  read_mixer(model, sizes);
  const std::string layer = kLayer;
  sizes.convolution_bias = model.has(layer + "attn.q_conv1d.bias");
  sizes.joined_ffn = !model.has(layer + "mlp.up_proj.weight");
  sizes.tied = !model.has("lm_head.weight");
  sizes.table_rows = model.read_vocabulary("model.embeddings.weight",
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
  if (config.faults().ok()) check_sizes(sizes, keys_of(sizes.mixer), config.faults());
}

}  // namespace runnel
