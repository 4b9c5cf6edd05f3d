#include "models/hybrid/spec.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "models/spec.h"

namespace runnel {
namespace {

const char* title_of(HybridStyle style) {
  constexpr const char* kTitles[] = {"Gated DeltaNet", "convolutions", "Mamba-2", "Mamba-2",
                                     "Mamba-2"};
  return kTitles[static_cast<int>(style)];
}

// Adds tensors under a prefix.
struct Adder {
  std::vector<ExpectedTensor>& to;
  std::string prefix;

  void add(const std::string& name, std::vector<int64_t> shape) const {
    to.push_back({prefix + name, std::move(shape)});
  }
  void linear(const std::string& name, int out, int in, bool bias = false) const {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }
};

void add_attention(const HybridSpec& sizes, const HybridNames& names, const Adder& layer) {
  const Adder to = {layer.to, layer.prefix + names.attention};
  const int keys = sizes.kv_heads * sizes.head_size;
  const int queries = sizes.attended() * (sizes.gates_attention() ? 2 : 1);
  to.linear("q_proj", queries, sizes.width, sizes.attention_bias);
  to.linear("k_proj", keys, sizes.width, sizes.attention_bias);
  to.linear("v_proj", keys, sizes.width, sizes.attention_bias);
  to.linear(names.attention_out, sizes.width, sizes.attended(), sizes.attention_bias);
  if (!sizes.norms_heads()) return;
  to.add(std::string(names.query_norm) + ".weight", {sizes.head_size});
  to.add(std::string(names.key_norm) + ".weight", {sizes.head_size});
}

void add_recurrent(const HybridSpec& sizes, const HybridNames& names, const Adder& layer) {
  const Adder to = {layer.to, layer.prefix + names.recurrent};
  const std::string convolution = names.convolution;
  to.add(convolution + ".weight", {sizes.channels(), 1, sizes.taps});
  if (sizes.convolution_bias) to.add(convolution + ".bias", {sizes.channels()});
  if (sizes.style == HybridStyle::kLfm2) {
    to.linear("in_proj", 3 * sizes.width, sizes.width, sizes.in_bias);
    to.linear("out_proj", sizes.width, sizes.width, sizes.out_bias);
    return;
  }
  to.add("A_log", {sizes.recurrent_heads});
  to.add("dt_bias", {sizes.recurrent_heads});
  to.linear("out_proj", sizes.width, sizes.inner(), sizes.out_bias);
  if (sizes.is_mamba2()) {
    to.linear("in_proj", sizes.projected(), sizes.width, sizes.in_bias);
    to.add("D", {sizes.recurrent_heads});
    if (sizes.gated_norm != GatedNormKind::kNone) to.add("norm.weight", {sizes.inner()});
    return;
  }
  to.linear("in_proj_qkv", sizes.channels(), sizes.width);
  to.linear("in_proj_z", sizes.inner(), sizes.width);
  to.linear("in_proj_b", sizes.recurrent_heads, sizes.width);
  to.linear("in_proj_a", sizes.recurrent_heads, sizes.width);
  to.add("norm.weight", {sizes.dv});
}

void add_feed_forward(const HybridSpec& sizes, const HybridNames& names, const Adder& layer) {
  if (sizes.joined_ffn()) {
    layer.linear(names.ffn_gate, 2 * sizes.ffn, sizes.width, sizes.ffn_bias);
  } else {
    if (sizes.gates_ffn()) layer.linear(names.ffn_gate, sizes.ffn, sizes.width, sizes.ffn_bias);
    layer.linear(names.ffn_up, sizes.ffn, sizes.width, sizes.ffn_bias);
  }
  layer.linear(names.ffn_down, sizes.width, sizes.ffn, sizes.ffn_bias);
}

}  // namespace

HybridNames names_of(const HybridSpec& sizes) {
  HybridNames names = {.table = "model.embed_tokens",
                       .layers = "model.layers.",
                       .final_norm = "model.norm",
                       .norm = "input_layernorm",
                       .ffn_norm = "post_attention_layernorm",
                       .attention = "self_attn.",
                       .attention_out = "o_proj",
                       .query_norm = "q_norm",
                       .key_norm = "k_norm",
                       .recurrent = "mamba.",
                       .convolution = "conv1d",
                       .ffn_gate = "mlp.gate_proj",
                       .ffn_up = "mlp.up_proj",
                       .ffn_down = "mlp.down_proj"};
  switch (sizes.style) {
    case HybridStyle::kQwen35:
      names.recurrent = "linear_attn.";
      if (!sizes.nested) break;
      for (std::string* const name : {&names.table, &names.layers, &names.final_norm}) {
        name->insert(std::string("model.").size(), "language_model.");
      }
      break;
    case HybridStyle::kLfm2:
      names.final_norm = "model.embedding_norm";
      names.norm = "operator_norm";
      names.ffn_norm = "ffn_norm";
      names.attention_out = "out_proj";
      names.query_norm = "q_layernorm";
      names.key_norm = "k_layernorm";
      names.recurrent = "conv.";
      names.convolution = "conv";
      names.ffn_gate = "feed_forward.w1";
      names.ffn_up = "feed_forward.w3";
      names.ffn_down = "feed_forward.w2";
      break;
    case HybridStyle::kGranite:
      names.ffn_gate = names.ffn_up = "shared_mlp.input_linear";
      names.ffn_down = "shared_mlp.output_linear";
      break;
    case HybridStyle::kFalconH1:
      names.final_norm = "model.final_layernorm";
      names.ffn_norm = "pre_ff_layernorm";
      names.ffn_gate = "feed_forward.gate_proj";
      names.ffn_up = "feed_forward.up_proj";
      names.ffn_down = "feed_forward.down_proj";
      break;
    case HybridStyle::kNemotronH:
      names.table = "backbone.embeddings";
      names.layers = "backbone.layers.";
      names.final_norm = "backbone.norm_f";
      names.norm = names.ffn_norm = "norm";
      names.attention = names.recurrent = "mixer.";
      names.ffn_up = "mixer.up_proj";
      names.ffn_down = "mixer.down_proj";
      break;
  }
  return names;
}

Recurrence recurrence_of(const HybridSpec& sizes) {
  if (sizes.is_mamba2()) {
    return {.heads = sizes.recurrent_heads,
            .key_heads = sizes.key_heads,
            .dk = sizes.dk,
            .dv = sizes.dv,
            .terms = Mamba2Terms{.dt_least = sizes.dt_least, .dt_most = sizes.dt_most}};
  }
  return {.heads = sizes.recurrent_heads,
          .dk = sizes.dk,
          .dv = sizes.dv,
          .terms = GatedTerms{.decay = DecayKind::kSoftplus,
                              .norm = KeyNorm::kL2,
                              .decay_of_heads = true,
                              .scale = static_cast<float>(1.0 / std::sqrt(double(sizes.dk))),
                              .delta = 1.0F}};
}

Attention attention_of(const HybridSpec& sizes) {
  return {.heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .dk = sizes.head_size,
          .dv = sizes.head_size,
          .scale = sizes.attention_scale};
}

std::vector<LayerStates> layers_of(const HybridSpec& sizes) {
  std::vector<LayerStates> layers(sizes.layers.size());
  for (int i = 0; i < sizes.depth(); ++i) {
    if (sizes.is_recurrent(i)) {
      if (sizes.style != HybridStyle::kLfm2) layers[i].push_back(recurrence_of(sizes));
      layers[i].push_back(ConvolutionState{"conv_inputs", sizes.taps - 1, sizes.channels()});
    }
    if (sizes.attends(i)) layers[i].push_back(attention_of(sizes));
  }
  return layers;
}

std::vector<ExpectedTensor> tensors_of(const HybridSpec& sizes, const Spec& /*spec*/) {
  const HybridNames names = names_of(sizes);
  std::vector<ExpectedTensor> tensors = {{names.table + ".weight", {sizes.table_rows, sizes.width}},
                                         {names.final_norm + ".weight", {sizes.width}}};
  if (!sizes.tied) tensors.push_back({"lm_head.weight", {sizes.table_rows, sizes.width}});
  for (int i = 0; i < sizes.depth(); ++i) {
    const Adder layer = {tensors, names.layer(i)};
    layer.add(std::string(names.norm) + ".weight", {sizes.width});
    if (sizes.is_recurrent(i)) add_recurrent(sizes, names, layer);
    if (sizes.attends(i)) add_attention(sizes, names, layer);
    if (!sizes.feeds(i)) continue;
    if (sizes.style != HybridStyle::kNemotronH) {
      layer.add(std::string(names.ffn_norm) + ".weight", {sizes.width});
    }
    add_feed_forward(sizes, names, layer);
  }
  return tensors;
}

std::vector<std::pair<std::string, std::string>> description_of(const HybridSpec& sizes,
                                                                const Spec& spec) {
  const auto text = [](int number) { return std::to_string(number); };
  const auto count = [&](bool (HybridSpec::*has)(int) const) {
    int found = 0;
    for (int i = 0; i < sizes.depth(); ++i) found += (sizes.*has)(i) ? 1 : 0;
    return text(found);
  };
  std::string recurrence = count(&HybridSpec::is_recurrent) + " layers of " + title_of(sizes.style);
  if (sizes.style != HybridStyle::kLfm2) {
    recurrence +=
        ", " + text(sizes.recurrent_heads) + " heads of " + text(sizes.dk) + " x " + text(sizes.dv);
  }
  return {
      {"size", text(sizes.depth()) + " layers, width " + text(sizes.width) + ", feed-forward " +
                   text(sizes.ffn)},
      {"recurrence", recurrence + ", convolution of " + text(sizes.taps)},
      {"attention", count(&HybridSpec::attends) + " layers, " + text(sizes.heads) + " heads of " +
                        text(sizes.head_size) + ", keys of " + text(sizes.kv_heads)},
      {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
      {"length", with_commas(spec.positions) + " positions, at most " +
                     with_commas(spec.most_positions) + " (--context)"}};
}

}  // namespace runnel
