#include "models/hybrid/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/limits.h"
#include "base/text.h"
#include "models/mamba2/config.h"

namespace runnel {
namespace {

constexpr std::array kStyles = {
    Choice{"qwen3_5", HybridStyle::kQwen35}, Choice{"lfm2", HybridStyle::kLfm2},
    Choice{"granite_h", HybridStyle::kGranite}, Choice{"falcon_h1", HybridStyle::kFalconH1},
    Choice{"nemotron_h", HybridStyle::kNemotronH}};
constexpr std::array kGatedNorms = {Choice{"none", GatedNormKind::kNone},
                                    Choice{"gate_first", GatedNormKind::kGateFirst},
                                    Choice{"norm_first", GatedNormKind::kNormFirst}};
constexpr std::array kInterleaved = {Choice{"none", Interleaved::kNone},
                                     Choice{"rates", Interleaved::kRates},
                                     Choice{"all", Interleaved::kAll}};

// Calls visit(key, member, least, largest) for every size.
template <typename Sizes, typename Visit>
void each_size(Sizes& sizes, const Visit& visit) {
  visit("width", sizes.width, 1, kMaxWidth);
  visit("ffn", sizes.ffn, 0, kMaxFfn);
  visit("heads", sizes.heads, 0, kMaxWidth);
  visit("kv_heads", sizes.kv_heads, 0, kMaxWidth);
  visit("head_size", sizes.head_size, 0, kMaxWidth);
  visit("rotated", sizes.rotated, 0, kMaxWidth);
  visit("recurrent_heads", sizes.recurrent_heads, 0, kMaxWidth);
  visit("key_heads", sizes.key_heads, 0, kMaxWidth);
  visit("key_size", sizes.dk, 0, kMaxWidth);
  visit("value_size", sizes.dv, 0, kMaxWidth);
  visit("taps", sizes.taps, 0, kMaxTaps);
}

// Calls visit(key, member) for every switch.
template <typename Sizes, typename Visit>
void each_switch(Sizes& sizes, const Visit& visit) {
  visit("attention_bias", sizes.attention_bias);
  visit("in_bias", sizes.in_bias);
  visit("out_bias", sizes.out_bias);
  visit("convolution_bias", sizes.convolution_bias);
  visit("ffn_bias", sizes.ffn_bias);
  visit("nested", sizes.nested);
  visit("tied", sizes.tied);
}

// The kinds of the layers, one letter each.
std::string read_layers(const Fields& model, Faults& faults) {
  const std::string expected = "1 to " + std::to_string(kMaxLayers) +
                               " letters, one for each layer, of r (recurrent), a (attention), b "
                               "(both), f (feed-forward alone) and e (experts alone)";
  const Json* const found = model.require("layers", expected);
  if (found == nullptr) return "r";
  const std::string layers = found->is_string() ? found->get<std::string>() : "";
  const bool known = layers.find_first_not_of("rabfe") == std::string::npos;
  if (known && !layers.empty() && std::ssize(layers) <= kMaxLayers) return layers;
  faults.add(model.path("layers"), expected, describe(*found));
  return "r";
}

ExpertSizes read_experts(const Fields& model) {
  const Fields fields =
      model.object("experts", {"count", "chosen", "ffn", "first", "shared", "bias", "factor"});
  ExpertSizes experts;
  experts.count = fields.small("count", 1, kMaxExperts);
  experts.chosen = fields.small("chosen", 1, kMaxChosenExperts);
  experts.ffn = fields.small("ffn", 1, kMaxFfn);
  experts.first = fields.small("first", 0, kMaxLayers);
  experts.shared = fields.small("shared", 0, kMaxFfn);
  experts.bias = fields.boolean("bias", false);
  experts.factor = fields.number("factor", 1.0F, kMaxHybridNumber);
  return experts;
}

OrderedJson experts_to_json(const ExpertSizes& experts) {
  OrderedJson json = {{"count", experts.count}, {"chosen", experts.chosen}, {"ffn", experts.ffn},
                      {"first", experts.first}, {"shared", experts.shared}, {"bias", experts.bias}};
  if (experts.factor != 1.0F) json["factor"] = shortest(experts.factor);
  return json;
}

// Checks the experts of a model that has them.
template <typename Want>
void check_experts(const HybridSpec& sizes, const HybridKeys& keys, const Want& want) {
  const ExpertSizes& experts = sizes.experts;
  if (experts.count == 0) return;
  const bool is_lfm2 = sizes.style == HybridStyle::kLfm2;
  const bool is_nemotron = sizes.style == HybridStyle::kNemotronH;
  want(sizes.style != HybridStyle::kFalconH1, keys.chosen, "no experts in this style",
       experts.chosen);
  want(experts.chosen <= experts.count, keys.chosen, "at most the number of experts",
       experts.chosen);
  want(experts.first < sizes.depth() && (is_lfm2 || experts.first == 0), keys.layers,
       "a layer with experts, and none without before it except in LFM2", experts.first);
  want((experts.shared > 0) == (sizes.routes_shared() || is_nemotron), keys.chosen,
       "an expert for all inputs in Qwen3.5 and Nemotron-H alone", experts.shared);
  want(is_lfm2 || is_nemotron || !experts.bias, keys.chosen,
       "a router with a bias in LFM2 and Nemotron-H alone", 1);
  want(!is_nemotron || !sizes.ffn_bias, keys.chosen, "no biases in a feed-forward with experts", 1);
}

}  // namespace

void check_sizes(const HybridSpec& sizes, const HybridKeys& keys, Faults& faults) {
  const auto want = [&](bool holds, const char* key, const char* what, int64_t found) {
    if (!holds) faults.add(key, what, std::to_string(found));
  };
  const auto at_most = [&](const char* key, int count, int size) {
    const int64_t all = int64_t{count} * size;
    want(count >= 1 && size >= 1 && all <= kMaxWidth, key,
         "heads that are together 1 to 16384 wide", all);
  };
  const bool one_each = sizes.style == HybridStyle::kNemotronH;
  want(!sizes.is_qwen3_next() || sizes.style == HybridStyle::kQwen35, keys.layers,
       "interleaved projections in Qwen3.5's style alone", 1);
  const bool feeds_alone = sizes.has('f') || sizes.has('e');
  want(!feeds_alone || one_each, keys.layers, "a mixer in every layer", 0);
  want(!sizes.has('e') || sizes.experts.count > 0, keys.layers, "experts in a layer of experts", 0);
  want(!sizes.has('b') || !one_each, keys.layers, "one mixer in every layer", 2);
  for (int i = 0; i < sizes.depth(); ++i) {
    want(!sizes.feeds(i) || sizes.mixes(i) || sizes.ffn > 0, keys.layers,
         "a feed-forward with a width", sizes.ffn);
  }
  want(sizes.experts.count == 0 || sizes.style != HybridStyle::kGranite || sizes.ffn > 0,
       keys.layers, "a feed-forward with a width", sizes.ffn);
  check_experts(sizes, keys, want);
  if (sizes.has_attention()) {
    at_most(keys.head_size, sizes.heads, sizes.head_size);
    want(sizes.kv_heads >= 1 && sizes.heads % std::max(sizes.kv_heads, 1) == 0, keys.kv_heads,
         "a divisor of the number of heads", sizes.kv_heads);
    want(sizes.rotated % 2 == 0 && sizes.rotated <= sizes.head_size, keys.head_size,
         "heads of which an even number of columns is rotated", sizes.rotated);
  }
  if (!sizes.has_recurrence()) return;
  want(sizes.taps >= 2, keys.recurrent_heads, "a convolution of 2 to 16 inputs", sizes.taps);
  if (sizes.style == HybridStyle::kLfm2) return;
  at_most(keys.dv, sizes.recurrent_heads, sizes.dv);
  at_most(keys.dk, sizes.key_heads, sizes.dk);
  want(sizes.key_heads >= 1 && sizes.recurrent_heads % std::max(sizes.key_heads, 1) == 0,
       keys.key_heads, "a divisor of the number of recurrent heads", sizes.key_heads);
}

void set_positions(int64_t most, Spec& spec) {
  spec.most_positions = most;
  spec.positions = std::min(most, kUsualPositions);
}

void read_hybrid(const Fields& root, Faults& faults, Spec& spec) {
  auto& sizes = spec.model.emplace<HybridSpec>();
  const Fields model = root.object("model", {"family",        "style",      "layers",
                                             "max_positions", "width",      "ffn",
                                             "heads",         "kv_heads",   "head_size",
                                             "rotated",       "theta",      "recurrent_heads",
                                             "key_heads",     "key_size",   "value_size",
                                             "taps",          "gated_norm", "attention_scale",
                                             "dt_least",      "dt_most",    "attention_bias",
                                             "in_bias",       "out_bias",   "convolution_bias",
                                             "ffn_bias",      "norm_eps",   "factors",
                                             "nested",        "gguf",       "tied",
                                             "table_rows",    "experts",    "interleaved"});
  sizes.style = model.choice("style", kStyles);
  sizes.layers = read_layers(model, faults);
  each_size(sizes, [&](const char* key, int& size, int64_t least, int64_t largest) {
    size = model.small(key, least, largest);
  });
  each_switch(sizes, [&](const char* key, bool& on) { on = model.boolean(key, on); });
  sizes.gguf = model.boolean("gguf", false);
  if (model.find("interleaved") != nullptr) {
    sizes.interleaved = model.choice("interleaved", kInterleaved);
  }
  sizes.theta = model.number("theta", sizes.theta, kMaxHybridNumber);
  sizes.attention_scale = model.number("attention_scale", sizes.attention_scale, kMaxHybridNumber);
  sizes.gated_norm = model.choice("gated_norm", kGatedNorms);
  sizes.dt_least = model.number("dt_least", sizes.dt_least, kMaxHybridNumber);
  sizes.dt_most = model.number("dt_most", sizes.dt_most, kMaxHybridNumber);
  check_time_step_limit(sizes.dt_least, sizes.dt_most, faults);
  sizes.norm_eps = model.eps("norm_eps", sizes.norm_eps);
  const Fields factors = model.object(
      "factors", {"embedding", "recurrent_in", "recurrent_out", "attention_in", "attention_out",
                  "key", "ffn_gate", "ffn_out", "z", "x", "b", "c", "dt", "head"});
  each_factor(sizes.factors, [&](const char* key, float& factor) {
    factor = factors.number(key, factor, kMaxHybridNumber);
  });
  if (model.find("experts") != nullptr) sizes.experts = read_experts(model);
  sizes.table_rows = model.small("table_rows", spec.vocabulary, kMaxVocabulary);
  set_positions(model.integer("max_positions", 1, kMaxContext), spec);
  spec.head.values = spec.vocabulary;
  if (!faults.ok()) return;
  check_sizes(
      sizes,
      {"model.layers", "model.heads", "model.kv_heads", "model.head_size", "model.recurrent_heads",
       "model.key_heads", "model.key_size", "model.value_size", "model.experts.chosen"},
      faults);
}

OrderedJson model_to_json(const HybridSpec& sizes, const Spec& spec) {
  OrderedJson model;
  model["style"] = name_of(kStyles, sizes.style);
  model["layers"] = sizes.layers;
  model["max_positions"] = spec.most_positions;
  each_size(sizes, [&](const char* key, int size, int64_t, int64_t) { model[key] = size; });
  model["theta"] = shortest(sizes.theta);
  model["attention_scale"] = shortest(sizes.attention_scale);
  model["gated_norm"] = name_of(kGatedNorms, sizes.gated_norm);
  if (sizes.dt_least > 0.0F) model["dt_least"] = shortest(sizes.dt_least);
  if (std::isfinite(sizes.dt_most)) model["dt_most"] = shortest(sizes.dt_most);
  each_switch(sizes, [&](const char* key, bool on) { model[key] = on; });
  if (sizes.gguf) model["gguf"] = true;
  if (sizes.is_qwen3_next()) model["interleaved"] = name_of(kInterleaved, sizes.interleaved);
  model["norm_eps"] = shortest(sizes.norm_eps);
  model["factors"] = OrderedJson::object();
  each_factor(sizes.factors, [&](const char* key, float factor) {
    if (factor != 1.0F) model["factors"][key] = shortest(factor);
  });
  model["table_rows"] = sizes.table_rows;
  if (sizes.experts.count > 0) model["experts"] = experts_to_json(sizes.experts);
  return model;
}

}  // namespace runnel
