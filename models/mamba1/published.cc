#include "models/mamba1/published.h"

#include <algorithm>
#include <string>

#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int kStateSize = 16;
constexpr int kExpand = 2;
constexpr int kTaps = 4;
constexpr int kWidthOfRank = 16;
constexpr float kMixerEps = 1e-6F;

// A number, or "auto".
int rank_of(const PublishedConfig& config, int width) {
  const int usual = (width + kWidthOfRank - 1) / kWidthOfRank;
  const Json* const found = config.find("time_step_rank");
  if (found != nullptr && *found == "auto") return usual;
  return config.integer_or("time_step_rank", usual, 1, kMaxWidth);
}

}  // namespace

void read_published_mamba1(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba1Spec>();
  const PublishedConfig& config = model.config;
  config.allow("hidden_act", {"silu", "swish"});
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  sizes.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  const int64_t expanded =
      int64_t{config.integer_or("expand", kExpand, 1, kMaxWidth)} * sizes.width;
  sizes.inner = config.integer_or(
      "intermediate_size", static_cast<int>(std::min<int64_t>(expanded, kMaxWidth)), 1, kMaxWidth);
  sizes.state_size = config.integer_or("state_size", kStateSize, 1, kMaxWidth);
  sizes.rank = rank_of(config, sizes.width);
  sizes.taps = config.integer_or("conv_kernel", kTaps, 2, kMaxTaps);
  sizes.bias = config.boolean_or("use_bias", false);
  sizes.convolution_bias = config.boolean_or("use_conv_bias", true);
  sizes.norm_eps = config.eps_or("layer_norm_epsilon", sizes.norm_eps);
  if (config.text_or("model_type", "") == "falcon_mamba") {
    sizes.mixer_eps = config.eps_or("mixer_rms_eps", kMixerEps);
  }
  sizes.tied = !model.has("lm_head.weight");
  sizes.table_rows = model.read_vocabulary("backbone.embeddings.weight",
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
}

}  // namespace runnel
