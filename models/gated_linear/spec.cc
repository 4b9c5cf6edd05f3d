#include "models/gated_linear/spec.h"

#include <cmath>

#include "models/spec.h"

namespace runnel {
namespace {

DecayKind decay_of(GatedMixer mixer) {
  switch (mixer) {
    case GatedMixer::kGla:
      return DecayKind::kLogSigmoid;
    case GatedMixer::kGatedDeltaNet:
    case GatedMixer::kKda:
      return DecayKind::kSoftplus;
    case GatedMixer::kHgrn2:
      return DecayKind::kSigmoid;
    case GatedMixer::kRetNet:
    case GatedMixer::kDeltaNet:
      break;
  }
  return DecayKind::kConstant;
}

const char* title_of(GatedMixer mixer) {
  constexpr const char* kTitles[] = {"GLA", "RetNet", "DeltaNet", "Gated DeltaNet", "KDA", "HGRN2"};
  return kTitles[static_cast<int>(mixer)];
}

void add_mixer(const GatedLinearSpec& sizes, const std::string& mixer,
               std::vector<ExpectedTensor>& to) {
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    to.push_back({mixer + name, std::move(shape)});
  };
  const auto project = [&](const std::string& name, int columns) {
    add(name + "_proj.weight", {columns, sizes.width});
    if (sizes.taps == 0) return;
    add(name + "_conv1d.weight", {columns, 1, sizes.taps});
    if (sizes.convolution_bias) add(name + "_conv1d.bias", {columns});
  };
  const auto low_rank = [&](const std::string& name, int columns, int rank, bool bias) {
    add(name + "_proj.0.weight", {rank, sizes.width});
    add(name + "_proj.1.weight", {columns, rank});
    if (bias) add(name + "_proj.1.bias", {columns});
  };
  const GatedLinearNames names = names_of(sizes);
  const bool hgrn2 = sizes.mixer == GatedMixer::kHgrn2;
  project(names.q, sizes.query_width());
  project(names.k, sizes.key_width());
  project(names.v, sizes.value_width());
  add("o_proj.weight", {sizes.width, sizes.output_width()});
  add(std::string(names.norm) + ".weight", {hgrn2 ? sizes.output_width() : sizes.dv});
  if (sizes.gate && sizes.gate_rank > 0) {
    low_rank("g", sizes.output_width(), sizes.gate_rank, true);
  } else if (sizes.gate) {
    add("g_proj.weight", {sizes.output_width(), sizes.width});
  }
  if (sizes.corrects() && sizes.beta) add("b_proj.weight", {sizes.heads, sizes.width});
  if (sizes.mixer == GatedMixer::kGla) {
    low_rank("gk", sizes.decay_width(), sizes.decay_rank, true);
  } else if (sizes.mixer == GatedMixer::kKda) {
    low_rank("f", sizes.decay_width(), sizes.decay_rank, false);
  } else if (sizes.mixer == GatedMixer::kGatedDeltaNet) {
    add("a_proj.weight", {sizes.heads, sizes.width});
    to.push_back({.name = mixer + "D", .shape = {sizes.heads}, .trained = false, .read = false});
  }
  if (decay_of(sizes.mixer) != DecayKind::kSoftplus) return;
  add("A_log", {sizes.heads});
  add("dt_bias", {sizes.decay_width()});
}

}  // namespace

int GatedLinearSpec::decay_width() const {
  switch (decay_of(mixer)) {
    case DecayKind::kConstant:
    case DecayKind::kExponential:
      return 0;
    case DecayKind::kLogSigmoid:
      return key_heads * dk;
    case DecayKind::kSigmoid:
      return heads * dk;
    case DecayKind::kSoftplus:
      return mixer == GatedMixer::kKda ? heads * dk : heads;
  }
  return 0;
}

GatedLinearNames names_of(const GatedLinearSpec& sizes) {
  if (sizes.mixer == GatedMixer::kHgrn2) return {"q", "f", "i", "g_norm"};
  if (sizes.corrects()) return {"q", "k", "v", "o_norm"};
  return {"q", "k", "v", sizes.gate_in_norm_name ? "g_norm_swish_gate" : "g_norm"};
}

Recurrence recurrence_of(const GatedLinearSpec& sizes) {
  GatedTerms terms = {.decay = decay_of(sizes.mixer),
                      .norm = sizes.key_norm,
                      .map = sizes.map,
                      .decay_of_heads = sizes.mixer == GatedMixer::kGatedDeltaNet,
                      .scale = static_cast<float>(1.0 / std::sqrt(double(sizes.dk)))};
  if (sizes.corrects()) terms.delta = sizes.negative ? 2.0F : 1.0F;
  if (sizes.decay_limit > 0.0F) terms.decay_least = -sizes.decay_limit;
  return {.heads = sizes.heads, .dk = sizes.dk, .dv = sizes.dv, .terms = terms};
}

std::vector<LayerStates> layers_of(const GatedLinearSpec& sizes) {
  LayerStates layer = {recurrence_of(sizes)};
  if (sizes.taps > 0) {
    layer.push_back(ConvolutionState{"q_inputs", sizes.taps - 1, sizes.query_width()});
    layer.push_back(ConvolutionState{"k_inputs", sizes.taps - 1, sizes.key_width()});
    layer.push_back(ConvolutionState{"v_inputs", sizes.taps - 1, sizes.value_width()});
  }
  return std::vector<LayerStates>(sizes.layers, layer);
}

std::vector<ExpectedTensor> tensors_of(const GatedLinearSpec& sizes, const Spec& /*spec*/) {
  std::vector<ExpectedTensor> tensors = {
      {"model.embeddings.weight", {sizes.table_rows, sizes.width}}};
  for (int i = 0; i < sizes.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    tensors.push_back({layer + "attn_norm.weight", {sizes.width}});
    add_mixer(sizes, layer + "attn.", tensors);
    tensors.push_back({layer + "mlp_norm.weight", {sizes.width}});
    const int rows = sizes.joined_ffn ? 2 * sizes.ffn : sizes.ffn;
    tensors.push_back({layer + "mlp.gate_proj.weight", {rows, sizes.width}});
    if (!sizes.joined_ffn) {
      tensors.push_back({layer + "mlp.up_proj.weight", {sizes.ffn, sizes.width}});
    }
    tensors.push_back({layer + "mlp.down_proj.weight", {sizes.width, sizes.ffn}});
  }
  if (sizes.mixer == GatedMixer::kHgrn2) {
    tensors.push_back({"model.lower_bounds", {sizes.layers, sizes.width}});
  }
  tensors.push_back({"model.norm.weight", {sizes.width}});
  if (!sizes.tied) tensors.push_back({"lm_head.weight", {sizes.table_rows, sizes.width}});
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const GatedLinearSpec& sizes,
                                                                const Spec& /*spec*/) {
  const auto text = [](int number) { return std::to_string(number); };
  std::string heads = text(sizes.heads) + " heads of " + text(sizes.dk) + " x " + text(sizes.dv);
  if (sizes.key_heads != sizes.heads) heads += ", keys of " + text(sizes.key_heads);
  std::string recurrence = title_of(sizes.mixer);
  if (sizes.taps > 0) recurrence += ", convolutions of " + text(sizes.taps);
  return {{"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " + heads +
                       ", feed-forward " + text(sizes.ffn)},
          {"recurrence", recurrence},
          {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
          {"length", "no end"}};
}

}  // namespace runnel
