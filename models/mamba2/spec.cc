#include "models/mamba2/spec.h"

#include <array>
#include <span>
#include <string_view>

#include "models/spec.h"

namespace runnel {

namespace {

constexpr std::string_view kEmbedding = "backbone.embeddings.weight";
constexpr std::string_view kLayers = "backbone.layers.";

// The beginnings of Hugging Face's names, outside and inside of layers, and their replacements in
// GGUF files.
struct Prefix {
  std::string_view hugging_face, gguf;
};
constexpr std::array kTop = {Prefix{"backbone.embeddings.", "token_embd."},
                             Prefix{"backbone.norm_f.", "output_norm."},
                             Prefix{"lm_head.", "output."}};
constexpr std::array kInLayer = {
    Prefix{"norm.", "attn_norm."},          Prefix{"mixer.in_proj.", "ssm_in."},
    Prefix{"mixer.conv1d.", "ssm_conv1d."}, Prefix{"mixer.dt_bias", "ssm_dt.bias"},
    Prefix{"mixer.A_log", "ssm_a"},         Prefix{"mixer.D", "ssm_d"},
    Prefix{"mixer.norm.", "ssm_norm."},     Prefix{"mixer.out_proj.", "ssm_out."},
};

std::string translated(std::string_view name, std::span<const Prefix> table) {
  for (const Prefix& prefix : table) {
    if (!name.starts_with(prefix.hugging_face)) continue;
    return std::string(prefix.gguf) + std::string(name.substr(prefix.hugging_face.size()));
  }
  return std::string(name);
}

}  // namespace

std::string name_in_file(Mamba2Names names, const std::string& name) {
  if (names == Mamba2Names::kStateSpaces && name == kEmbedding) return "backbone.embedding.weight";
  if (names != Mamba2Names::kGguf) return name;
  if (!name.starts_with(kLayers)) return translated(name, kTop);
  const size_t rest = name.find('.', kLayers.size()) + 1;
  return "blk." + name.substr(kLayers.size(), rest - kLayers.size()) +
         translated(std::string_view(name).substr(rest), kInLayer);
}

Recurrence recurrence_of(const Mamba2Spec& sizes) {
  return {.heads = sizes.heads,
          .key_heads = sizes.groups,
          .dk = sizes.state_size,
          .dv = sizes.head_size,
          .terms = Mamba2Terms{.dt_least = sizes.dt_least, .dt_most = sizes.dt_most}};
}

std::vector<LayerStates> layers_of(const Mamba2Spec& sizes) {
  const LayerStates layer = {recurrence_of(sizes),
                             ConvolutionState{"conv_inputs", sizes.taps - 1, sizes.channels()}};
  return std::vector<LayerStates>(sizes.layers, layer);
}

std::vector<ExpectedTensor> tensors_of(const Mamba2Spec& sizes, const Spec& /*spec*/) {
  std::vector<ExpectedTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.push_back({name_in_file(sizes.names, name), std::move(shape)});
  };
  const bool is_gguf = sizes.names == Mamba2Names::kGguf;
  add(std::string(kEmbedding), {sizes.table_rows, sizes.width});
  for (int i = 0; i < sizes.layers; ++i) {
    const std::string layer = std::string(kLayers) + std::to_string(i) + ".";
    const std::string mixer = layer + "mixer.";
    add(layer + "norm.weight", {sizes.width});
    add(mixer + "in_proj.weight", {sizes.projected(), sizes.width});
    add(mixer + "conv1d.weight", {sizes.channels(), 1, sizes.taps});
    for (const char* const name : {"dt_bias", "A_log", "D"}) add(mixer + name, {sizes.heads});
    add(mixer + "norm.weight",
        is_gguf ? std::vector<int64_t>{sizes.groups, sizes.inner() / sizes.groups}
                : std::vector<int64_t>{sizes.inner()});
    add(mixer + "out_proj.weight", {sizes.width, sizes.inner()});
    if (sizes.convolution_bias) add(mixer + "conv1d.bias", {sizes.channels()});
    if (!sizes.bias) continue;
    add(mixer + "in_proj.bias", {sizes.projected()});
    add(mixer + "out_proj.bias", {sizes.width});
  }
  add("backbone.norm_f.weight", {sizes.width});
  if (!sizes.tied) add("lm_head.weight", {sizes.table_rows, sizes.width});
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const Mamba2Spec& sizes,
                                                                const Spec& /*spec*/) {
  const auto text = [](int number) { return std::to_string(number); };
  std::string groups = sizes.groups == 1 ? "1 group" : text(sizes.groups) + " groups";
  return {{"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " +
                       text(sizes.heads) + " heads of " + text(sizes.head_size) + " in " + groups},
          {"recurrence",
           "Mamba-2, states of " + text(sizes.state_size) + ", convolution of " + text(sizes.taps)},
          {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
          {"length", "no end"}};
}

}  // namespace runnel
