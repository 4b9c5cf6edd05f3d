#include "models/rwkv6/spec.h"

#include "models/spec.h"

namespace runnel {

Recurrence recurrence_of(const Rwkv6Spec& sizes) {
  const DecayKind decay = sizes.is_six() ? DecayKind::kExponential : DecayKind::kConstant;
  return {.heads = sizes.heads,
          .dk = sizes.head_size(),
          .dv = sizes.head_size(),
          .terms = GatedTerms{.decay = decay}};
}

// Version 6 needs the difference of the previous input and the new one, which a convolution
// computes.
std::vector<LayerStates> layers_of(const Rwkv6Spec& sizes) {
  LayerStates layer = {recurrence_of(sizes)};
  if (sizes.is_six()) {
    layer.push_back(ConvolutionState{"time_input", 1, sizes.width});
  } else {
    layer.push_back(ShiftState{"time_input", sizes.width});
  }
  layer.push_back(ShiftState{"channel_input", sizes.width});
  return std::vector<LayerStates>(sizes.layers, layer);
}

std::vector<ExpectedTensor> tensors_of(const Rwkv6Spec& sizes, const Spec& /*spec*/) {
  const int64_t width = sizes.width;
  std::vector<ExpectedTensor> tensors = {{"emb.weight", {sizes.table_rows, width}},
                                         {"head.weight", {sizes.table_rows, width}}};
  const auto vector = [&](const std::string& name) {
    tensors.push_back({.name = name, .shape = {width}, .vector = true});
  };
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + ".weight", {width}});
    tensors.push_back({name + ".bias", {width}});
  };
  norm("blocks.0.ln0");
  norm("ln_out");
  for (int i = 0; i < sizes.layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const std::string att = block + "att.";
    const std::string ffn = block + "ffn.";
    const std::string mix = sizes.is_six() ? "time_maa_" : "time_mix_";
    for (const char* const name : {"ln1", "ln2", "att.ln_x"}) norm(block + name);
    for (const char* const to : {"k", "v", "r", "g"}) vector(att + mix + to);
    for (const char* const to : {"k", "r"}) vector(ffn + mix + to);
    for (const char* const name : {"receptance", "key", "value", "gate", "output"}) {
      tensors.push_back({att + name + ".weight", {width, width}});
    }
    tensors.push_back({att + "time_faaaa", {sizes.heads, sizes.head_size()}});
    if (sizes.is_six()) {
      for (const char* const name : {"time_maa_x", "time_maa_w", "time_decay"}) vector(att + name);
      tensors.push_back({att + "time_maa_w1", {width, 5 * int64_t{sizes.mix_rank}}});
      tensors.push_back({att + "time_maa_w2", {5, sizes.mix_rank, width}});
      tensors.push_back({att + "time_decay_w1", {width, sizes.decay_rank}});
      tensors.push_back({att + "time_decay_w2", {sizes.decay_rank, width}});
    } else {
      tensors.push_back({att + "time_decay", {sizes.heads, sizes.head_size()}});
    }
    tensors.push_back({ffn + "key.weight", {sizes.ffn, width}});
    tensors.push_back({ffn + "receptance.weight", {width, width}});
    tensors.push_back({ffn + "value.weight", {width, sizes.ffn}});
  }
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const Rwkv6Spec& sizes,
                                                                const Spec& /*spec*/) {
  const auto text = [](int number) { return std::to_string(number); };
  return {{"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " +
                       text(sizes.heads) + " heads of " + text(sizes.head_size()) +
                       ", feed-forward " + text(sizes.ffn)},
          {"recurrence", sizes.is_six() ? "RWKV-6" : "RWKV-5.2"},
          {"head", "categorical"},
          {"length", "no end"}};
}

}  // namespace runnel
