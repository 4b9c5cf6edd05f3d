#include "tests/fuzz/published_properties.h"

#include <array>

#include "base/check.h"
#include "models/bundle/config.h"
#include "models/bundle/published.h"
#include "models/bundle/weight_files.h"
#include "tests/fuzz/properties.h"

namespace runnel {
namespace {

StoredTensors stored_tensors(const FamilySpec& model) {
  Spec spec;
  spec.model = model;
  StoredTensors tensors;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    tensors[tensor.name] = {StoredType::kF32, tensor.shape, 0, 0};
  }
  return tensors;
}

StoredTensors rwkv7_tensors(Rwkv7Names names) {
  Rwkv7Spec sizes;
  sizes.names = names;
  sizes.layers = 2;
  sizes.width = sizes.value_width = 8;
  sizes.heads = 2;
  sizes.ffn = 32;
  sizes.ranks = {1, 2, 3, 4};
  sizes.table_rows = 9;
  return stored_tensors(sizes);
}

StoredTensors mamba2_tensors(Mamba2Names names) {
  Mamba2Spec sizes;
  sizes.names = names;
  sizes.layers = 2;
  sizes.width = 8;
  sizes.heads = 4;
  sizes.head_size = 4;
  sizes.state_size = 3;
  sizes.table_rows = 9;
  return stored_tensors(sizes);
}

StoredTensors gated_linear_tensors(GatedMixer mixer) {
  GatedLinearSpec sizes;
  sizes.mixer = mixer;
  sizes.layers = 2;
  sizes.width = 8;
  sizes.heads = sizes.key_heads = 2;
  sizes.dk = sizes.dv = 4;
  sizes.ffn = 5;
  sizes.decay_rank = sizes.gate_rank = 3;
  sizes.table_rows = 9;
  return stored_tensors(sizes);
}

StoredTensors rwkv6_tensors(Rwkv6Version version) {
  Rwkv6Spec sizes;
  sizes.version = version;
  sizes.layers = 2;
  sizes.width = 8;
  sizes.heads = 2;
  sizes.ffn = 5;
  sizes.mix_rank = sizes.decay_rank = 3;
  sizes.table_rows = 9;
  return stored_tensors(sizes);
}

StoredTensors mamba1_tensors(bool state_spaces_names) {
  Mamba1Spec sizes;
  sizes.state_spaces_names = state_spaces_names;
  sizes.layers = 2;
  sizes.width = 8;
  sizes.inner = 16;
  sizes.state_size = 3;
  sizes.rank = 2;
  sizes.table_rows = 9;
  return stored_tensors(sizes);
}

StoredTensors hybrid_tensors(HybridStyle style) {
  HybridSpec sizes;
  sizes.style = style;
  sizes.layers = style == HybridStyle::kFalconH1 ? "bb" : "ra";
  sizes.width = 8;
  sizes.ffn = 5;
  sizes.heads = 2;
  sizes.kv_heads = 1;
  sizes.head_size = 4;
  sizes.recurrent_heads = 4;
  sizes.key_heads = 2;
  sizes.dk = 3;
  sizes.dv = 4;
  sizes.taps = 3;
  sizes.table_rows = 9;
  return stored_tensors(sizes);
}

}  // namespace

bool check_published(std::string_view text) {
  static const std::array kTensors = {rwkv7_tensors(Rwkv7Names::kOfficial),
                                      rwkv7_tensors(Rwkv7Names::kFlaX),
                                      mamba2_tensors(Mamba2Names::kHuggingFace),
                                      mamba2_tensors(Mamba2Names::kStateSpaces),
                                      gated_linear_tensors(GatedMixer::kGla),
                                      gated_linear_tensors(GatedMixer::kKda),
                                      rwkv6_tensors(Rwkv6Version::kSix),
                                      rwkv6_tensors(Rwkv6Version::kFive),
                                      mamba1_tensors(false),
                                      mamba1_tensors(true),
                                      hybrid_tensors(HybridStyle::kQwen35),
                                      hybrid_tensors(HybridStyle::kLfm2),
                                      hybrid_tensors(HybridStyle::kNemotronH)};
  const std::string file = "config.json";
  const Result<Json> tree = parse_published(text, file);
  if (!tree.ok()) {
    check_refusal(tree.status(), file);
    return false;
  }
  if (!is_published(*tree)) return false;
  bool accepted = false;
  for (const StoredTensors& tensors : kTensors) {
    Result<Spec> spec = published_spec(*tree, tensors, "model.safetensors", file);
    if (!spec.ok()) {
      check_refusal(spec.status(), file);
      continue;
    }
    accepted = true;
    spec->name = "published";  // load_bundle() uses the directory's name
    const Result<Spec> own = parse_spec(spec_to_json(*spec), file);
    check(own.ok() && spec_to_json(*own) == spec_to_json(*spec), "a bundle can say the same");
  }
  if (const auto eos = published_eos(*tree, file); !eos.ok()) check_refusal(eos.status(), file);
  return accepted;
}

bool check_weight_index(std::string_view text) {
  const std::string file = "model.safetensors.index.json";
  const auto index = parse_weight_index(text, file);
  if (!index.ok()) {
    check_refusal(index.status(), file);
    return false;
  }
  check(!index->empty(), "an index has tensors");
  for (const auto& [tensor, name] : *index) {
    check(name.find('/') == std::string::npos && name != ".." && !name.empty(),
          "a file is one of the directory's own");
  }
  return true;
}

std::vector<std::string> published_seeds() {
  return {
      R"({"model_type":"rwkv7","eos_token_id":0})",
      R"({"model_type":"rwkv7","hidden_size":8,"num_hidden_layers":2,"head_dim":4,"vocab_size":9,
"intermediate_size":null,"hidden_ratio":4.0,"value_dim":[8,8],"norm_eps":1e-5,"attn":null,
"eos_token_id":[1,2]})",
      R"({"model_type":"mamba2","hidden_size":8,"num_hidden_layers":2,"num_heads":4,"head_dim":4,
"state_size":3,"n_groups":1,"expand":2,"vocab_size":9,"time_step_limit":[0.0,Infinity]})",
      R"({"ssm_cfg":{"layer":"Mamba2","headdim":4,"d_state":3},"d_model":8,"n_layer":2,
"vocab_size":9,"attn_cfg":{}})",
      R"({"ssm_cfg":{"d_state":3,"dt_rank":2},"d_model":8,"n_layer":2,"vocab_size":9,
"rms_norm":true})",
      R"({"model_type":"gla","hidden_size":8,"num_hidden_layers":2,"num_heads":2,"expand_k":1.0,
"expand_v":1.0,"clamp_min":-0.5,"feature_map":"relu","vocab_size":9,"intermediate_size":5})",
      R"({"model_type":"kda","hidden_size":8,"num_hidden_layers":2,"num_heads":2,"head_dim":4,
"expand_v":1.0,"num_v_heads":null,"vocab_size":9,"hidden_ratio":4,"use_short_conv":true})",
      R"({"model_type":"rwkv6"})",
      R"({"model_type":"falcon_mamba","hidden_size":8,"num_hidden_layers":2,"state_size":3,
"time_step_rank":"auto","vocab_size":9,"mixer_rms_eps":1e-6,"intermediate_size":16})",
      R"({"model_type":"lfm2","hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,
"num_key_value_heads":1,"layer_types":["conv","full_attention"],"max_position_embeddings":99,
"rope_theta":1e6,"vocab_size":9})",
      R"({"model_type":"lfm2_moe","hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,
"full_attn_idxs":[1],"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":3,
"num_dense_layers":1,"max_position_embeddings":99,"vocab_size":9})",
      R"({"model_type":"qwen3_5_moe_text","hidden_size":8,"num_hidden_layers":2,
"num_attention_heads":2,"num_key_value_heads":1,"num_experts":4,"num_experts_per_tok":2,
"moe_intermediate_size":3,"shared_expert_intermediate_size":5,"norm_topk_prob":true,
"max_position_embeddings":99,"vocab_size":9})",
      R"({"model_type":"falcon_h1","hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,
"mamba_d_ssm":16,"mamba_n_heads":4,"mamba_d_state":3,"mlp_multipliers":[0.5,2.0],
"rope_parameters":{"rope_type":"default"},"intermediate_size":5,"vocab_size":9,
"max_position_embeddings":99})",
      R"({"model_type":"nemotron_h","hidden_size":8,"hybrid_override_pattern":"M*-",
"num_attention_heads":2,"mamba_num_heads":4,"mamba_head_dim":4,"ssm_state_size":3,"n_groups":2,
"intermediate_size":5,"vocab_size":9,"max_position_embeddings":99,"sliding_window":null})",
      R"({"model_type":"nemotron_h","hidden_size":8,"hybrid_override_pattern":"ME*",
"num_attention_heads":2,"mamba_num_heads":4,"mamba_head_dim":4,"ssm_state_size":3,"n_groups":2,
"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":5,"n_group":1,
"moe_shared_expert_intermediate_size":7,"vocab_size":9,"max_position_embeddings":99})",
      R"({"model_type":"hgrn2","hidden_size":8,"num_hidden_layers":2,"expand_ratio":4,
"vocab_size":9,"use_lower_bound":true,"intermediate_size":null})",
  };
}

std::vector<std::string> weight_index_seeds() {
  return {
      R"({"metadata":{"total_size":8},"weight_map":{"a":"model-1.safetensors",
"b":"model-2.safetensors"}})",
  };
}

std::span<const std::string_view> published_words() {
  static constexpr std::string_view kWords[] = {
      "null",    "true",  "false",     "0",
      "1",       "2",     "4",         "8",
      "-1",      "9",     "16384",     "1048576",
      "1e-45",   "1e39",  "0.5",       "18446744073709551615",
      "NaN",     "{}",    "Infinity",  "-Infinity",
      "[]",      "[0,1]", "\"\"",      "\"mamba2\"",
      "\"gla\"", "{",     "}",         "[",
      "]",       ",",     "\"rwkv7\"", "\"",
      "\\"};
  return kWords;
}

std::span<const std::string_view> weight_index_words() {
  static constexpr std::string_view kWords[] = {"\"..\"", "\"../a.safetensors\"",
                                                "/",      "..",
                                                "\"\"",   "\"b.safetensors\"",
                                                "{}",     "[]",
                                                "null",   "1",
                                                "\"",     ".safetensors"};
  return kWords;
}

}  // namespace runnel
