#include "models/hybrid/published.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/limits.h"
#include "base/text.h"
#include "models/hybrid/config.h"
#include "models/mamba2/published.h"

namespace runnel {
namespace {

constexpr int kTaps = 4;
constexpr double kTheta = 10000.0;  // of rotary angles
constexpr int kNemotronHeadSize = 128;
constexpr const char* kLayers = "num_hidden_layers";
constexpr const char* kChosen = "num_experts_per_tok";

// ---- layers -------------------------------------------------------------------------------------

// The letter of HybridSpec::layers for a kind of layer; 0 if the kind is not supported.
char letter_of(std::string_view kind) {
  if (kind == "full_attention" || kind == "attention") return 'a';
  if (kind == "linear_attention" || kind == "mamba" || kind == "conv") return 'r';
  if (kind == "mlp") return 'f';
  if (kind == "moe") return 'e';
  return 0;
}

// The kinds of layers that one of the keys lists; "" if neither key is present.
std::string listed_layers(const PublishedConfig& config) {
  for (const char* const key : {"layer_types", "layers_block_type"}) {
    const Json* const found = config.find(key);
    if (found == nullptr) continue;
    std::string layers;
    for (const Json& kind : found->is_array() ? *found : Json::array({*found})) {
      const char letter = kind.is_string() ? letter_of(kind.get_ref<const std::string&>()) : '\0';
      if (letter == 0) {
        config.faults().add(config.path(key),
                            "'linear_attention', 'mamba', 'conv', 'full_attention', 'attention', "
                            "'mlp' or 'moe', the kinds of layers that are implemented",
                            describe(kind));
        return "r";
      }
      layers += letter;
    }
    return layers;
  }
  return "";
}

std::string nemotron_layers(const PublishedConfig& config) {
  std::string layers = listed_layers(config);
  if (!layers.empty()) return layers;
  for (const char kind : config.text_or("hybrid_override_pattern", "")) {
    const size_t at = std::string_view("M*-E").find(kind);
    if (at == std::string_view::npos) {
      config.faults().add(config.path("hybrid_override_pattern"),
                          "'M', '*', '-' and 'E', the kinds of layers that are implemented",
                          "'" + printable(std::string(1, kind)) + "'");
      return "r";
    }
    layers += "rafe"[at];
  }
  return layers;
}

std::string layers_of(const PublishedConfig& config, HybridStyle style) {
  if (style == HybridStyle::kNemotronH) return nemotron_layers(config);
  const int count = config.integer(kLayers, 1, kMaxLayers);
  if (style == HybridStyle::kFalconH1) return std::string(count, 'b');
  std::string layers = listed_layers(config);
  if (!layers.empty()) return layers;
  if (style == HybridStyle::kQwen35) {
    const int every = config.integer_or("full_attention_interval", kInterval, 1, kMaxLayers);
    for (int i = 0; i < count; ++i) layers += (i + 1) % every == 0 ? 'a' : 'r';
  } else if (style == HybridStyle::kLfm2) {
    const Json* const full = config.find("full_attn_idxs");
    layers.assign(count, full == nullptr ? 'a' : 'r');
    for (const Json& index : full != nullptr && full->is_array() ? *full : Json::array()) {
      if (index.is_number_unsigned() && index < count) layers[index.get<size_t>()] = 'a';
    }
  }
  return layers;
}

void read_layers(const PublishedConfig& config, HybridSpec& sizes) {
  sizes.layers = layers_of(config, sizes.style);
  const int count = config.integer_or(kLayers, sizes.depth(), 1, kMaxLayers);
  if (sizes.depth() == count && count >= 1 && count <= kMaxLayers) return;
  config.faults().add(config.path(kLayers), "a kind for each of its layers",
                      std::to_string(sizes.depth()) + " kinds for " + std::to_string(count));
  sizes.layers = "r";
}

// ---- attention ----------------------------------------------------------------------------------

// Reads the rotary angles, as transformers does: older files have rope_scaling instead of
// rope_parameters, and only Qwen's classes rotate a part of each head.
void read_rotary(const PublishedConfig& config, double theta, HybridSpec& sizes) {
  const bool is_partial = sizes.style == HybridStyle::kQwen35;
  constexpr const char* kShare = "partial_rotary_factor";
  theta = config.number_or("rope_theta", theta, 1.0, kMaxHybridNumber);
  double share = is_partial ? config.number_or(kShare, 0.25, 0.0, 1.0) : 1.0;
  for (const char* const key : {"rope_parameters", "rope_scaling"}) {
    const PublishedConfig rope = config.object(key);
    for (const char* const type : {"rope_type", "type"}) rope.allow(type, {"default"});
    theta = rope.number_or("rope_theta", theta, 1.0, kMaxHybridNumber);
    if (is_partial) share = rope.number_or(kShare, share, 0.0, 1.0);
  }
  sizes.theta = static_cast<float>(theta);
  sizes.rotated = static_cast<int>(sizes.head_size * share);
}

void read_attention(const PublishedConfig& config, int head_size, HybridSpec& sizes) {
  sizes.heads = config.integer("num_attention_heads", 1, kMaxWidth);
  sizes.kv_heads = config.integer_or("num_key_value_heads", sizes.heads, 1, kMaxWidth);
  const int usual = head_size > 0 ? head_size : std::max(sizes.width / sizes.heads, 1);
  sizes.head_size = config.integer_or("head_dim", usual, 1, kMaxWidth);
  sizes.attention_scale = static_cast<float>(1.0 / std::sqrt(double(sizes.head_size)));
  sizes.attention_bias = config.boolean_or("attention_bias", false);
}

float factor_of(const PublishedConfig& config, const char* key) {
  return static_cast<float>(config.number_or(key, 1.0, kLeastFactor, kMaxHybridNumber));
}

// Reads numbers from a list; ones if the key is absent.
template <size_t N>
void read_factors(const PublishedConfig& config, const char* key, float* const (&factors)[N]) {
  const Json* const found = config.find(key);
  if (found == nullptr) return;
  const bool fits = found->is_array() && found->size() == N;
  for (size_t i = 0; fits && i < N; ++i) {
    const Json one = {{"factor", (*found)[i]}};
    *factors[i] = factor_of(PublishedConfig(config.faults(), &one, config.path(key)), "factor");
  }
  if (fits) return;
  config.faults().add(config.path(key), std::to_string(N) + " numbers", describe(*found));
}

// Whether the type of a config of Qwen or LFM2 has experts.
bool has_experts(const PublishedConfig& config) {
  const std::string type = config.text_or("model_type", "");
  return type == "qwen3_next" || type.find("_moe") != std::string::npos;
}

void refuse_experts(const PublishedConfig& config, const char* key) {
  const Json* const found = config.find(key);
  if (found == nullptr || *found == 0) return;
  config.faults().add(config.path(key), "0, as experts of this model_type are not implemented",
                      describe(*found));
}

void read_experts(const PublishedConfig& config, const char* count, const char* ffn,
                  HybridSpec& sizes) {
  sizes.experts.count = config.integer(count, 1, kMaxExperts);
  sizes.experts.chosen = config.integer(kChosen, 1, kMaxChosenExperts);
  sizes.experts.ffn = config.integer(ffn, 1, kMaxFfn);
  config.allow("norm_topk_prob", true);
}

// ---- styles -------------------------------------------------------------------------------------

void read_qwen35(const PublishedModel& model, HybridSpec& sizes) {
  const PublishedConfig& config = model.config;
  config.allow("hidden_act", {"silu", "swish"});
  config.allow("attn_output_gate", true);
  if (has_experts(config)) {
    read_experts(config, "num_experts", "moe_intermediate_size", sizes);
    sizes.experts.shared = config.integer("shared_expert_intermediate_size", 1, kMaxFfn);
    config.allow_nothing("mlp_only_layers", "a layer without experts");
    config.integer_or("decoder_sparse_step", 1, 1, 1);
  } else {
    refuse_experts(config, "num_experts");
    sizes.ffn = config.integer("intermediate_size", 1, kMaxFfn);
  }
  sizes.norm_eps = config.eps_or("rms_norm_eps", 1e-6F);
  read_attention(config, 256, sizes);
  read_rotary(config, kTheta, sizes);
  sizes.recurrent_heads = config.integer_or("linear_num_value_heads", 32, 1, kMaxWidth);
  sizes.key_heads = config.integer_or("linear_num_key_heads", 16, 1, kMaxWidth);
  sizes.dk = config.integer_or("linear_key_head_dim", 128, 1, kMaxWidth);
  sizes.dv = config.integer_or("linear_value_head_dim", 128, 1, kMaxWidth);
  sizes.taps = config.integer_or("linear_conv_kernel_dim", kTaps, 2, kMaxTaps);
  if (config.text_or("model_type", "") == "qwen3_next") sizes.interleaved = Interleaved::kAll;
  sizes.nested = model.has("model.language_model.embed_tokens.weight");
}

void read_lfm2(const PublishedModel& model, HybridSpec& sizes) {
  const PublishedConfig& config = model.config;
  config.allow_nothing("sliding_window", "a window of attention");
  sizes.norm_eps = config.eps_or("norm_eps", 1e-5F);
  read_attention(config, 0, sizes);
  read_rotary(config, 1e6, sizes);
  sizes.taps = config.integer_or("conv_L_cache", 3, 2, kMaxTaps);
  const bool bias = config.boolean_or("conv_bias", false);
  sizes.in_bias = sizes.out_bias = sizes.convolution_bias = bias;
  if (has_experts(config)) {
    read_experts(config, "num_experts", "moe_intermediate_size", sizes);
    sizes.experts.first = config.integer_or("num_dense_layers", 2, 0, kMaxLayers);
    sizes.experts.bias = config.boolean_or("use_expert_bias", true);
    sizes.experts.factor = factor_of(config, "routed_scaling_factor");
    if (sizes.experts.first == 0) return;
  }
  sizes.ffn = model.size("model.layers.0.feed_forward.w1.weight", 0, kMaxFfn);
}

// The size of heads that are together `inner` wide.
int mamba_head_size(const PublishedConfig& config, int64_t inner, int heads) {
  const Json* const found = config.find("mamba_d_head");
  const int usual = static_cast<int>(std::clamp<int64_t>(inner / heads, 1, kMaxWidth));
  const bool is_auto =
      found != nullptr && found->is_string() && found->get_ref<const std::string&>() == "auto";
  const int size = is_auto ? usual : config.integer_or("mamba_d_head", usual, 1, kMaxWidth);
  if (int64_t{size} * heads == inner) return size;
  config.faults().add(
      config.path("mamba_d_head"),
      std::to_string(heads) + " heads that are together " + std::to_string(inner) + " wide",
      std::to_string(size));
  return 1;
}

// Reads Granite's and Falcon's keys of Mamba-2.
void read_mamba(const PublishedConfig& config, HybridSpec& sizes) {
  const int64_t expanded =
      int64_t{config.integer_or("mamba_expand", 2, 1, kMaxWidth)} * sizes.width;
  const int inner = config.integer_or(
      "mamba_d_ssm", static_cast<int>(std::min<int64_t>(expanded, kMaxWidth)), 1, kMaxWidth);
  sizes.recurrent_heads = config.integer_or("mamba_n_heads", 128, 1, kMaxWidth);
  sizes.dv = mamba_head_size(config, inner, sizes.recurrent_heads);
  sizes.dk = config.integer_or("mamba_d_state", 256, 1, kMaxWidth);
  sizes.key_heads = config.integer_or("mamba_n_groups", 1, 1, kMaxWidth);
  sizes.taps = config.integer_or("mamba_d_conv", kTaps, 2, kMaxTaps);
  sizes.convolution_bias = config.boolean_or("mamba_conv_bias", true);
  sizes.in_bias = config.boolean_or("mamba_proj_bias", false);
  sizes.out_bias = sizes.in_bias;
}

void read_granite(const PublishedModel& model, HybridSpec& sizes) {
  const PublishedConfig& config = model.config;
  config.allow("hidden_act", {"silu", "swish"});
  config.allow("position_embedding_type", {"nope", "rope"});
  if (config.integer_or("num_local_experts", 0, 0, kMaxExperts) > 0) {
    read_experts(config, "num_local_experts", "intermediate_size", sizes);
  }
  sizes.norm_eps = config.eps_or("rms_norm_eps", 1e-6F);
  sizes.ffn = config.integer_or("shared_intermediate_size", 1024, 1, kMaxFfn);
  read_attention(config, 0, sizes);
  const bool rotates = config.text_or("position_embedding_type", "nope") == "rope";
  if (rotates) read_rotary(config, kTheta, sizes);
  sizes.attention_scale = factor_of(config, "attention_multiplier");
  read_mamba(config, sizes);
  HybridFactors& factors = sizes.factors;
  factors.embedding = factor_of(config, "embedding_multiplier");
  factors.recurrent_out = factors.attention_out = factors.ffn_out =
      factor_of(config, "residual_multiplier");
  factors.head = 1.0F / factor_of(config, "logits_scaling");
}

void read_falcon_h1(const PublishedModel& model, HybridSpec& sizes) {
  const PublishedConfig& config = model.config;
  config.allow("hidden_act", {"silu", "swish"});
  sizes.norm_eps = config.eps_or("rms_norm_eps", 1e-5F);
  sizes.ffn = config.integer("intermediate_size", 1, kMaxFfn);
  read_attention(config, 0, sizes);
  read_rotary(config, kTheta, sizes);
  read_mamba(config, sizes);
  sizes.out_bias = config.boolean_or("projectors_bias", false);
  sizes.ffn_bias = config.boolean_or("mlp_bias", false);
  const bool first = config.boolean_or("mamba_norm_before_gate", true);
  sizes.gated_norm = !config.boolean_or("mamba_rms_norm", false) ? GatedNormKind::kNone
                     : first                                     ? GatedNormKind::kNormFirst
                                                                 : GatedNormKind::kGateFirst;
  HybridFactors& factors = sizes.factors;
  factors.embedding = factor_of(config, "embedding_multiplier");
  factors.head = factor_of(config, "lm_head_multiplier");
  factors.key = factor_of(config, "key_multiplier");
  factors.recurrent_in = factor_of(config, "ssm_in_multiplier");
  factors.recurrent_out = factor_of(config, "ssm_out_multiplier");
  factors.attention_in = factor_of(config, "attention_in_multiplier");
  factors.attention_out = factor_of(config, "attention_out_multiplier");
  read_factors(config, "mlp_multipliers", {&factors.ffn_gate, &factors.ffn_out});
  read_factors(config, "ssm_multipliers",
               {&factors.z, &factors.x, &factors.b, &factors.c, &factors.dt});
}

void read_nemotron_experts(const PublishedConfig& config, HybridSpec& sizes) {
  read_experts(config, "n_routed_experts", "moe_intermediate_size", sizes);
  sizes.experts.shared = config.integer("moe_shared_expert_intermediate_size", 1, kMaxFfn);
  sizes.experts.bias = true;
  sizes.experts.factor = factor_of(config, "routed_scaling_factor");
  config.integer_or("n_group", 1, 1, 1);
  config.integer_or("n_shared_experts", 1, 1, 1);
  config.allow_nothing("moe_latent_size", "a latent size of experts");
}

void read_nemotron_h(const PublishedModel& model, HybridSpec& sizes) {
  const PublishedConfig& config = model.config;
  config.allow("mlp_hidden_act", {"relu2"});
  config.allow("mamba_hidden_act", {"silu", "swish"});
  config.allow_nothing("sliding_window", "a window of attention");
  sizes.norm_eps = config.eps_or("layer_norm_epsilon", 1e-5F);
  if (sizes.has('f')) sizes.ffn = config.integer("intermediate_size", 1, kMaxFfn);
  if (sizes.has('e')) read_nemotron_experts(config, sizes);
  read_attention(config, kNemotronHeadSize, sizes);
  sizes.ffn_bias = config.boolean_or("mlp_bias", false);
  sizes.recurrent_heads = config.integer("mamba_num_heads", 1, kMaxWidth);
  sizes.dv = config.integer("mamba_head_dim", 1, kMaxWidth);
  sizes.dk = config.integer("ssm_state_size", 1, kMaxWidth);
  // Older configs have other names for some keys. transformers prefers them.
  const auto named = [&](const char* key, const char* older) {
    return config.find(older) != nullptr ? older : key;
  };
  sizes.key_heads = config.integer_or(named("n_groups", "mamba_n_groups"), 8, 1, kMaxWidth);
  sizes.taps = config.integer_or(named("conv_kernel", "mamba_d_conv"), kTaps, 2, kMaxTaps);
  sizes.convolution_bias = config.boolean_or(named("use_conv_bias", "mamba_conv_bias"), true);
  sizes.in_bias = sizes.out_bias = config.boolean_or("use_bias", false);
}

HybridStyle style_of(const PublishedConfig& config) {
  const std::string type = config.text_or("model_type", "");
  if (type == "lfm2" || type == "lfm2_moe") return HybridStyle::kLfm2;
  if (type == "granitemoehybrid") return HybridStyle::kGranite;
  if (type == "falcon_h1") return HybridStyle::kFalconH1;
  if (type == "nemotron_h") return HybridStyle::kNemotronH;
  return HybridStyle::kQwen35;
}

void read_style(const PublishedModel& model, HybridSpec& sizes) {
  switch (sizes.style) {
    case HybridStyle::kQwen35:
      return read_qwen35(model, sizes);
    case HybridStyle::kLfm2:
      return read_lfm2(model, sizes);
    case HybridStyle::kGranite:
      return read_granite(model, sizes);
    case HybridStyle::kFalconH1:
      return read_falcon_h1(model, sizes);
    case HybridStyle::kNemotronH:
      return read_nemotron_h(model, sizes);
  }
}

HybridKeys keys_of(HybridStyle style) {
  switch (style) {
    case HybridStyle::kQwen35:
      return {kLayers,
              "num_attention_heads",
              "num_key_value_heads",
              "head_dim",
              "linear_num_value_heads",
              "linear_num_key_heads",
              "linear_key_head_dim",
              "linear_value_head_dim",
              kChosen};
    case HybridStyle::kNemotronH:
      return {kLayers,          "num_attention_heads", "num_key_value_heads",
              "head_dim",       "mamba_num_heads",     "n_groups",
              "ssm_state_size", "mamba_head_dim",      kChosen};
    default:
      return {kLayers,         "num_attention_heads", "num_key_value_heads",
              "head_dim",      "mamba_n_heads",       "mamba_n_groups",
              "mamba_d_state", "mamba_d_head",        kChosen};
  }
}

}  // namespace

void read_published_hybrid(const PublishedModel& given, Spec& spec) {
  auto& sizes = spec.model.emplace<HybridSpec>();
  sizes.style = style_of(given.config);
  // Image models have the text model inside.
  const bool inside = given.config.find("text_config") != nullptr;
  const PublishedModel model = {inside ? given.config.object("text_config") : given.config,
                                given.tensors, given.weights};
  const PublishedConfig& config = model.config;
  sizes.width = config.integer("hidden_size", 1, kMaxWidth);
  read_layers(config, sizes);
  read_style(model, sizes);
  if (sizes.is_mamba2()) {
    read_time_step_limit(config, "time_step_limit", sizes.dt_least, sizes.dt_most);
  }
  if (sizes.style == HybridStyle::kNemotronH) {  // an older name, which transformers prefers
    read_time_step_limit(config, "mamba_dt_limit", sizes.dt_least, sizes.dt_most);
  }
  sizes.tied = !model.has("lm_head.weight");
  sizes.table_rows = model.read_vocabulary(names_of(sizes).table + ".weight",
                                           config.integer("vocab_size", 1, kMaxVocabulary), spec);
  set_positions(config.integer("max_position_embeddings", 1, kMaxContext), spec);
  if (config.faults().ok()) check_sizes(sizes, keys_of(sizes.style), config.faults());
}

}  // namespace runnel
