#include "models/mamba2/published.h"

#include <limits>
#include <string>

#include "base/limits.h"
#include "base/text.h"
#include "models/mamba2/config.h"

namespace runnel {
namespace {

constexpr const char* kStateSpaces = "ssm_cfg";  // a key that only their configs have
constexpr const char* kLayer = "layer";
constexpr const char* kMamba1 = "Mamba1";
constexpr const char* kMamba2 = "Mamba2";
constexpr int kHeadSize = 64;
constexpr int kStateSize = 128;
constexpr int kExpand = 2;
constexpr int kTaps = 4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Checks that heads * head_size is `expand` times the width.
void check_inner(const PublishedConfig& config, int expand, const Mamba2Spec& sizes) {
  const int64_t inner = int64_t{expand} * sizes.width;
  if (sizes.heads * int64_t{sizes.head_size} == inner) return;
  config.faults().add(
      config.path("expand"),
      "heads of " + std::to_string(sizes.head_size) + " that are together " +
          std::to_string(expand) + " times as wide as the model",
      std::to_string(sizes.heads) + " heads and a width of " + std::to_string(sizes.width));
}

// Checks the other sizes that must match, and names the keys of this file.
void check_sizes(const PublishedConfig& config, const char* groups, const char* state_size,
                 const Mamba2Spec& sizes) {
  const auto at_most = [&](const char* key, const char* what, int64_t found) {
    if (found <= kMaxWidth) return;
    config.faults().add(config.path(key),
                        std::string(what) + " to be at most " + std::to_string(kMaxWidth),
                        std::to_string(found));
  };
  at_most("expand", "this times the width", sizes.inner());
  at_most(state_size, "this times the groups", int64_t{sizes.groups} * sizes.state_size);
  if (sizes.heads % sizes.groups == 0) return;
  config.faults().add(config.path(groups),
                      "a divisor of " + std::to_string(sizes.heads) + ", the number of heads",
                      std::to_string(sizes.groups));
}

// The number of groups. Without a key for it, the number follows from the convolution's channels.
int groups_of(const PublishedModel& model, const Mamba2Spec& sizes) {
  const PublishedConfig& config = model.config;
  if (config.find("n_groups") != nullptr) return config.integer("n_groups", 1, kMaxWidth);
  const std::string tensor = "backbone.layers.0.mixer.conv1d.weight";
  const int channels = model.size(tensor, 0, 3 * kMaxWidth);
  const int both = channels - sizes.inner();  // B and C of every group
  if (both > 0 && both % (2 * sizes.state_size) == 0) return both / (2 * sizes.state_size);
  config.faults().add("n_groups",
                      "this key, or " + quote(tensor) + " of " + std::to_string(sizes.inner()) +
                          " channels and a multiple of " + std::to_string(2 * sizes.state_size),
                      std::to_string(channels) + " channels");
  return 1;
}

// Reads the keys of Hugging Face and flash-linear-attention.
void read_hugging_face(const PublishedModel& model, Mamba2Spec& sizes) {
  const PublishedConfig& config = model.config;
  config.refuse_attention("attn");
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
  sizes.groups = groups_of(model, sizes);
  check_sizes(config, "n_groups", "state_size", sizes);
  sizes.taps = config.integer_or("conv_kernel", kTaps, 2, kMaxTaps);
  sizes.bias = config.boolean_or("use_bias", false);
  sizes.convolution_bias = config.boolean_or("use_conv_bias", true);
  for (const char* const key : {"layer_norm_epsilon", "norm_eps"}) {
    sizes.norm_eps = config.eps_or(key, sizes.norm_eps);
  }
  // Hugging Face's class ignores this option in its files.
  const bool is_fla = config.find("norm_eps") != nullptr || config.find("dt_limit") != nullptr;
  sizes.norm_before_gate = is_fla && config.boolean_or("norm_before_gate", false);
  for (const char* const key : {"time_step_limit", "dt_limit"}) {
    read_time_step_limit(config, key, sizes.dt_least, sizes.dt_most);
  }
}

// Reads state-spaces' keys. Absent keys have the defaults of its code.
void read_state_spaces(const PublishedConfig& config, Mamba2Spec& sizes) {
  refuse_state_spaces_options(config);
  const PublishedConfig layer = config.object(kStateSpaces);
  if (state_spaces_layer(config) != kMamba2) {
    const Json* const found = layer.find(kLayer);
    config.faults().add(layer.path(kLayer),
                        is_untyped_mamba2(config)
                            ? "'Mamba1' or 'Mamba2', the layers that are implemented"
                            : "'Mamba2', the layer of this model_type",
                        found == nullptr ? "no such key" : describe(*found));
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
  check_sizes(layer, "ngroups", "d_state", sizes);
  sizes.taps = layer.integer_or("d_conv", kTaps, 2, kMaxTaps);
  sizes.bias = layer.boolean_or("bias", false);
  sizes.convolution_bias = layer.boolean_or("conv_bias", true);
  sizes.norm_before_gate = layer.boolean_or("norm_before_gate", false);
  read_time_step_limit(layer, "dt_limit", sizes.dt_least, sizes.dt_most);
}

}  // namespace

bool is_untyped_mamba2(const PublishedConfig& config) {
  const std::string layer = state_spaces_layer(config);
  return !layer.empty() && layer != kMamba1;
}

std::string state_spaces_layer(const PublishedConfig& config) {
  if (config.find(kStateSpaces) == nullptr) return "";
  return config.object(kStateSpaces).text_or(kLayer, kMamba1);
}

void refuse_state_spaces_options(const PublishedConfig& config) {
  config.refuse_attention("attn_layer_idx");
  config.allow_nothing("attn_cfg", "attention in some of the layers");
  config.allow("rms_norm", true);
  config.integer_or("d_intermediate", 0, 0, 0);
}

void read_time_step_limit(const PublishedConfig& config, const char* key, float& least,
                          float& most) {
  const Json* const found = config.find(key);
  if (found == nullptr) return;
  const Json ends = found->is_array() && found->size() == 2
                        ? Json{{"least", (*found)[0]}, {"most", (*found)[1]}}
                        : Json::object();
  const PublishedConfig limits(config.faults(), &ends, config.path(key));
  least = static_cast<float>(limits.number_or("least", 0.0, 0.0, kMaxTimeStep));
  const double last = limits.number_or("most", kInfinity, 0.0, kInfinity);
  most = static_cast<float>(last > kMaxTimeStep ? kInfinity : last);
  if (ends.empty() || least > most || most == 0.0F) {
    config.faults().add(config.path(key), "two numbers, the least first, the most above 0",
                        printable(json_text(*found)));
  }
}

void read_published_mamba2(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Mamba2Spec>();
  const PublishedConfig& config = model.config;
  if (config.find(kStateSpaces) != nullptr) {
    read_state_spaces(config, sizes);
  } else {
    read_hugging_face(model, sizes);
  }
  if (model.has("backbone.embedding.weight")) sizes.names = Mamba2Names::kStateSpaces;
  sizes.table_rows = model.read_vocabulary(name_in_file(sizes.names, "backbone.embeddings.weight"),
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
  sizes.tied = !model.has("lm_head.weight");
}

}  // namespace runnel
