#include "models/mamba1/published.h"

#include <algorithm>
#include <string>

#include "base/limits.h"
#include "models/mamba2/published.h"

namespace runnel {
namespace {

constexpr int kStateSize = 16;
constexpr int kExpand = 2;
constexpr int kTaps = 4;
constexpr int kWidthOfRank = 16;
constexpr float kMixerEps = 1e-6F;

// A number, or "auto".
int rank_of(const PublishedConfig& config, const char* key, int width) {
  const int usual = (width + kWidthOfRank - 1) / kWidthOfRank;
  const Json* const found = config.find(key);
  if (found != nullptr && *found == "auto") return usual;
  return config.integer_or(key, usual, 1, kMaxWidth);
}

// The number of channels if no key gives it.
int expanded(const PublishedConfig& config, int width) {
  const int64_t channels = int64_t{config.integer_or("expand", kExpand, 1, kMaxWidth)} * width;
  return static_cast<int>(std::min<int64_t>(channels, kMaxWidth));
}

void read_hugging_face(const PublishedConfig& config, Mamba1Spec& sizes) {
  config.allow("hidden_act", {"silu", "swish"});
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  sizes.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  sizes.inner = config.integer_or("intermediate_size", expanded(config, sizes.width), 1, kMaxWidth);
  sizes.state_size = config.integer_or("state_size", kStateSize, 1, kMaxWidth);
  sizes.rank = rank_of(config, "time_step_rank", sizes.width);
  sizes.taps = config.integer_or("conv_kernel", kTaps, 2, kMaxTaps);
  sizes.bias = config.boolean_or("use_bias", false);
  sizes.convolution_bias = config.boolean_or("use_conv_bias", true);
  // norm_eps is flash-linear-attention's name.
  for (const char* const key : {"norm_eps", "layer_norm_epsilon"}) {
    sizes.norm_eps = config.eps_or(key, sizes.norm_eps);
  }
  if (config.text_or("model_type", "") == "falcon_mamba") {
    sizes.mixer_eps = config.eps_or("mixer_rms_eps", kMixerEps);
  }
}

// Absent keys have the defaults of state-spaces' code, which has no key for the eps.
void read_state_spaces(const PublishedConfig& config, Mamba1Spec& sizes) {
  refuse_state_spaces_options(config);
  const PublishedConfig layer = config.object("ssm_cfg");
  sizes.width = config.integer("d_model", 1, kMaxWidth);
  sizes.layers = config.integer("n_layer", 1, kMaxLayers);
  sizes.inner = expanded(layer, sizes.width);
  sizes.state_size = layer.integer_or("d_state", kStateSize, 1, kMaxWidth);
  sizes.rank = rank_of(layer, "dt_rank", sizes.width);
  sizes.taps = layer.integer_or("d_conv", kTaps, 2, kMaxTaps);
  sizes.bias = layer.boolean_or("bias", false);
  sizes.convolution_bias = layer.boolean_or("conv_bias", true);
}

}  // namespace

bool is_untyped_mamba1(const PublishedConfig& config) {
  return state_spaces_layer(config) == "Mamba1";
}

void read_published_mamba1(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba1Spec>();
  const PublishedConfig& config = model.config;
  // Hugging Face's copies of state-spaces' models kept the original keys, including ssm_cfg.
  if (config.find("model_type") == nullptr && is_untyped_mamba1(config)) {
    read_state_spaces(config, sizes);
  } else {
    read_hugging_face(config, sizes);
  }
  sizes.state_spaces_names = model.has("backbone.embedding.weight");
  sizes.tied = !model.has("lm_head.weight");
  sizes.table_rows = model.read_vocabulary(sizes.embedding(),
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
}

}  // namespace runnel
