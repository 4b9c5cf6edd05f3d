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
  to.linear(names.query, queries, sizes.width, sizes.attention_bias);
  to.linear(names.key, keys, sizes.width, sizes.attention_bias);
  to.linear(names.value, keys, sizes.width, sizes.attention_bias);
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
    to.linear(names.in, 3 * sizes.width, sizes.width, sizes.in_bias);
    to.linear(names.out, sizes.width, sizes.width, sizes.out_bias);
    return;
  }
  to.add(names.rates, {sizes.recurrent_heads});
  to.add(names.dt_bias, {sizes.recurrent_heads});
  to.linear(names.out, sizes.width, sizes.inner(), sizes.out_bias);
  const std::string norm = std::string(names.gated_norm) + ".weight";
  if (sizes.is_mamba2()) {
    to.linear(names.in, sizes.projected(), sizes.width, sizes.in_bias);
    to.add(names.skip, {sizes.recurrent_heads});
    if (sizes.gated_norm == GatedNormKind::kNone) return;
    const int groups = sizes.key_heads;
    to.add(norm, sizes.gguf ? std::vector<int64_t>{groups, sizes.inner() / groups}
                            : std::vector<int64_t>{sizes.inner()});
    return;
  }
  if (sizes.interleaved == Interleaved::kAll) {
    layer.linear(names.qkv, sizes.channels() + sizes.inner(), sizes.width);
  } else {
    layer.linear(names.qkv, sizes.channels(), sizes.width);
    layer.linear(names.z, sizes.inner(), sizes.width);
  }
  if (sizes.is_qwen3_next()) {
    layer.linear(names.rate, 2 * sizes.recurrent_heads, sizes.width);
  } else {
    layer.linear(names.rate, sizes.recurrent_heads, sizes.width);
    layer.linear(names.dt, sizes.recurrent_heads, sizes.width);
  }
  to.add(norm, {sizes.dv});
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

// Adds a tensor [experts, out, in], or one [out, in] for each expert.
void add_experts_of(const ExpertSizes& experts, const std::string& name, int64_t out, int64_t in,
                    const Adder& layer) {
  if (name.find('*') == std::string::npos) {
    layer.add(name, {experts.count, out, in});
    layer.to.back().used = experts.chosen;
    return;
  }
  for (int e = 0; e < experts.count; ++e) {
    layer.add(expert_name(name, e), {out, in});
    if (e >= experts.chosen) layer.to.back().used = 0;
  }
}

void add_experts(const HybridSpec& sizes, const HybridNames& names, const Adder& layer) {
  const ExpertSizes& experts = sizes.experts;
  layer.add(names.router, {experts.count, sizes.width});
  if (experts.bias) layer.add(names.router_bias, {experts.count});
  const auto add = [&](const char* name, int64_t out, int64_t in) {
    add_experts_of(experts, name, out, in, layer);
  };
  if (sizes.joined_experts()) {
    add(names.expert_gate, 2 * experts.ffn, sizes.width);
  } else {
    if (sizes.gates_ffn()) add(names.expert_gate, experts.ffn, sizes.width);
    add(names.expert_up, experts.ffn, sizes.width);
  }
  add(names.expert_down, sizes.width, experts.ffn);
  if (experts.shared == 0) return;
  if (sizes.routes_shared()) {
    layer.add(names.shared_router, {sizes.width});
    layer.to.back().vector = true;
  }
  if (sizes.gates_ffn()) layer.add(names.shared_gate, {experts.shared, sizes.width});
  layer.add(names.shared_up, {experts.shared, sizes.width});
  layer.add(names.shared_down, {sizes.width, experts.shared});
}

// llama.cpp's names.
HybridNames names_of_gguf(const HybridSpec& sizes) {
  const HybridStyle style = sizes.style;
  HybridNames names = {.table = "token_embd",
                       .layers = "blk.",
                       .final_norm = "output_norm",
                       .head = "output",
                       .norm = "attn_norm",
                       .ffn_norm = "ffn_norm.weight",
                       .attention = "attn_",
                       .query = "q",
                       .key = "k",
                       .value = "v",
                       .attention_out = "output",
                       .query_norm = "q_norm",
                       .key_norm = "k_norm",
                       .recurrent = "ssm_",
                       .in = "in",
                       .convolution = "conv1d",
                       .rates = "a",
                       .dt_bias = "dt.bias",
                       .skip = "d",
                       .gated_norm = "norm",
                       .out = "out",
                       .qkv = "attn_qkv",
                       .z = "attn_gate",
                       .rate = "ssm_beta",
                       .dt = "ssm_alpha",
                       .ffn_gate = "ffn_gate",
                       .ffn_up = "ffn_up",
                       .ffn_down = "ffn_down",
                       .router = "ffn_gate_inp.weight",
                       .router_bias = "exp_probs_b.bias",
                       .expert_gate = "ffn_gate_exps.weight",
                       .expert_up = "ffn_up_exps.weight",
                       .expert_down = "ffn_down_exps.weight",
                       .shared_router = "ffn_gate_inp_shexp.weight",
                       .shared_gate = "ffn_gate_shexp.weight",
                       .shared_up = "ffn_up_shexp.weight",
                       .shared_down = "ffn_down_shexp.weight"};
  if (style == HybridStyle::kGranite && sizes.experts.count > 0) {
    names.ffn_gate = "ffn_gate_shexp";
    names.ffn_up = "ffn_up_shexp";
    names.ffn_down = "ffn_down_shexp";
  }
  if (style == HybridStyle::kQwen35) names.ffn_norm = "post_attention_norm.weight";
  if (sizes.is_qwen3_next()) names.rate = "ssm_ba";
  if (sizes.interleaved == Interleaved::kAll) names.qkv = "ssm_in";
  if (style == HybridStyle::kFalconH1) names.ffn_norm = "ffn_norm";
  if (style == HybridStyle::kNemotronH) names.ffn_norm = "attn_norm.weight";
  if (style == HybridStyle::kLfm2) {
    names.final_norm = "token_embd_norm";
    names.recurrent = "shortconv.";
    names.in = "in_proj";
    names.convolution = "conv";
    names.out = "out_proj";
  }
  return names;
}

// Most names are the same in the files of all publishers.
HybridNames usual_names() {
  return {.table = "model.embed_tokens",
          .layers = "model.layers.",
          .final_norm = "model.norm",
          .head = "lm_head",
          .norm = "input_layernorm",
          .ffn_norm = "post_attention_layernorm.weight",
          .attention = "self_attn.",
          .query = "q_proj",
          .key = "k_proj",
          .value = "v_proj",
          .attention_out = "o_proj",
          .query_norm = "q_norm",
          .key_norm = "k_norm",
          .recurrent = "mamba.",
          .in = "in_proj",
          .convolution = "conv1d",
          .rates = "A_log",
          .dt_bias = "dt_bias",
          .skip = "D",
          .gated_norm = "norm",
          .out = "out_proj",
          .qkv = "linear_attn.in_proj_qkv",
          .z = "linear_attn.in_proj_z",
          .rate = "linear_attn.in_proj_b",
          .dt = "linear_attn.in_proj_a",
          .ffn_gate = "mlp.gate_proj",
          .ffn_up = "mlp.up_proj",
          .ffn_down = "mlp.down_proj",
          .router = "mlp.gate.weight",
          .router_bias = "mlp.gate.bias",
          .expert_gate = "mlp.experts.gate_up_proj",
          .expert_up = "mlp.experts.gate_up_proj",
          .expert_down = "mlp.experts.down_proj",
          .shared_router = "mlp.shared_expert_gate.weight",
          .shared_gate = "mlp.shared_expert.gate_proj.weight",
          .shared_up = "mlp.shared_expert.up_proj.weight",
          .shared_down = "mlp.shared_expert.down_proj.weight"};
}

}  // namespace

HybridNames names_of(const HybridSpec& sizes) {
  if (sizes.gguf) return names_of_gguf(sizes);
  HybridNames names = usual_names();
  switch (sizes.style) {
    case HybridStyle::kQwen35:
      names.recurrent = "linear_attn.";
      if (sizes.is_qwen3_next()) {
        names.qkv = "linear_attn.in_proj_qkvz";
        names.rate = "linear_attn.in_proj_ba";
        names.expert_gate = "mlp.experts.*.gate_proj.weight";
        names.expert_up = "mlp.experts.*.up_proj.weight";
        names.expert_down = "mlp.experts.*.down_proj.weight";
      }
      if (!sizes.nested) break;
      for (std::string* const name : {&names.table, &names.layers, &names.final_norm}) {
        name->insert(std::string("model.").size(), "language_model.");
      }
      break;
    case HybridStyle::kLfm2:
      names.final_norm = "model.embedding_norm";
      names.norm = "operator_norm";
      names.ffn_norm = "ffn_norm.weight";
      names.attention_out = "out_proj";
      names.query_norm = "q_layernorm";
      names.key_norm = "k_layernorm";
      names.recurrent = "conv.";
      names.convolution = "conv";
      names.ffn_gate = "feed_forward.w1";
      names.ffn_up = "feed_forward.w3";
      names.ffn_down = "feed_forward.w2";
      names.router = "feed_forward.gate.weight";
      names.router_bias = "feed_forward.expert_bias";
      names.expert_gate = "feed_forward.experts.*.w1.weight";
      names.expert_up = "feed_forward.experts.*.w3.weight";
      names.expert_down = "feed_forward.experts.*.w2.weight";
      break;
    case HybridStyle::kGranite:
      names.ffn_gate = names.ffn_up = "shared_mlp.input_linear";
      names.ffn_down = "shared_mlp.output_linear";
      names.router = "block_sparse_moe.router.layer.weight";
      names.expert_gate = names.expert_up = "block_sparse_moe.input_linear.weight";
      names.expert_down = "block_sparse_moe.output_linear.weight";
      break;
    case HybridStyle::kFalconH1:
      names.final_norm = "model.final_layernorm";
      names.ffn_norm = "pre_ff_layernorm.weight";
      names.ffn_gate = "feed_forward.gate_proj";
      names.ffn_up = "feed_forward.up_proj";
      names.ffn_down = "feed_forward.down_proj";
      break;
    case HybridStyle::kNemotronH:
      names.table = "backbone.embeddings";
      names.layers = "backbone.layers.";
      names.final_norm = "backbone.norm_f";
      names.norm = "norm";
      names.ffn_norm = "norm.weight";
      names.attention = names.recurrent = "mixer.";
      names.ffn_up = "mixer.up_proj";
      names.ffn_down = "mixer.down_proj";
      names.router = "mixer.gate.weight";
      names.router_bias = "mixer.gate.e_score_correction_bias";
      names.expert_up = "mixer.experts.*.up_proj.weight";
      names.expert_down = "mixer.experts.*.down_proj.weight";
      names.shared_up = "mixer.shared_experts.up_proj.weight";
      names.shared_down = "mixer.shared_experts.down_proj.weight";
      break;
  }
  return names;
}

std::string expert_name(std::string name, int expert) {
  const size_t at = name.find('*');
  return at == std::string::npos ? name : name.replace(at, 1, std::to_string(expert));
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
                              .tiled_keys = sizes.gguf && !sizes.is_qwen3_next(),
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
  if (!sizes.tied) {
    tensors.push_back({std::string(names.head) + ".weight", {sizes.table_rows, sizes.width}});
  }
  for (int i = 0; i < sizes.depth(); ++i) {
    const Adder layer = {tensors, names.layer(i)};
    layer.add(std::string(names.norm) + ".weight", {sizes.width});
    if (sizes.is_recurrent(i)) add_recurrent(sizes, names, layer);
    if (sizes.attends(i)) add_attention(sizes, names, layer);
    if (!sizes.feeds(i)) continue;
    if (sizes.style != HybridStyle::kNemotronH) {
      layer.add(names.ffn_norm, {sizes.width});
    }
    const bool mixes = sizes.mixes(i);
    if (!mixes || sizes.style == HybridStyle::kGranite) add_feed_forward(sizes, names, layer);
    if (mixes) add_experts(sizes, names, layer);
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
  std::string size = text(sizes.depth()) + " layers, width " + text(sizes.width);
  if (sizes.ffn > 0) size += ", feed-forward " + text(sizes.ffn);
  if (const ExpertSizes& experts = sizes.experts; experts.count > 0) {
    size += ", " + text(experts.chosen) + " of " + text(experts.count) + " experts of " +
            text(experts.ffn);
    if (experts.shared > 0) size += " and one of " + text(experts.shared) + " for all";
  }
  return {
      {"size", size},
      {"recurrence", recurrence + ", convolution of " + text(sizes.taps)},
      {"attention", count(&HybridSpec::attends) + " layers, " + text(sizes.heads) + " heads of " +
                        text(sizes.head_size) + ", keys of " + text(sizes.kv_heads)},
      {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
      {"length", with_commas(spec.positions) + " positions, at most " +
                     with_commas(spec.most_positions) + " (--context)"}};
}

}  // namespace runnel
