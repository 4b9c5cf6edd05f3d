#include "models/hybrid/gguf.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "models/hybrid/config.h"

namespace runnel {
namespace {

constexpr const char* kHeads = "attention.head_count";
constexpr const char* kKvHeads = "attention.head_count_kv";
constexpr const char* kFfn = "feed_forward_length";
constexpr const char* kUsedExperts = "expert_used_count";
constexpr const char* kSharedFfn = "expert_shared_feed_forward_length";
constexpr int kSigmoidRouter = 2;  // of expert_gating_func

// The keys of a file, without the prefix of its architecture.
class Keys {
 public:
  explicit Keys(const PublishedConfig& config)
      : config_(config), architecture_(config.text_or("general.architecture", "")) {}

  const std::string& architecture() const { return architecture_; }
  std::string path(const char* key) const { return architecture_ + "." + key; }
  const Json* find(const char* key) const { return config_.find(path(key).c_str()); }

  void fault(const char* key, const std::string& expected, const std::string& found) const {
    config_.faults().add(path(key), expected, found);
  }

  int size(const char* key, int64_t max = kMaxWidth, int64_t min = 1) const {
    return config_.integer(path(key).c_str(), min, max);
  }
  int size_or(const char* key, int fallback, int64_t min, int64_t max) const {
    return config_.integer_or(path(key).c_str(), fallback, min, max);
  }
  float number_or(const char* key, double fallback, double least) const {
    const std::string name = path(key);
    return static_cast<float>(config_.number_or(name.c_str(), fallback, least, kMaxHybridNumber));
  }
  float eps_or(const char* key, float fallback) const {
    return config_.eps_or(path(key).c_str(), fallback);
  }
  void allow(const char* key, bool only) const { config_.allow(path(key).c_str(), only); }
  void allow(const char* key, const char* only) const { config_.allow(path(key).c_str(), {only}); }
  // Only an absent key or 0 is allowed.
  void allow_none(const char* key, const char* what) const {
    const Json* const found = find(key);
    if (found == nullptr || *found == 0) return;
    fault(key, std::string("0, as ") + what + " not implemented", describe(*found));
  }

  // A scale of rotary positions: only an absent key, 1 or 0, which means 1, is allowed.
  void allow_one(const char* key) const {
    const Json* const found = find(key);
    if (found == nullptr || *found == 1 || *found == 0) return;
    fault(key, "1, as scaled rotary positions are not implemented", describe(*found));
  }
  // Only true is allowed. An absent key means false.
  void need_true(const char* key) const {
    const Json* const found = find(key);
    if (found != nullptr && *found == true) return;
    fault(key, "true, all that is implemented",
          found == nullptr ? "no such key, which means false" : describe(*found));
  }

  int blocks() const { return size("block_count", kMaxLayers); }

  // An integer up to `max` for each of the first `depth` layers. The file has one integer for each
  // of its blocks, or one for all.
  std::vector<int> of_layers(const char* key, int depth, int64_t max) const {
    const Json* const found = find(key);
    if (found == nullptr || !found->is_array()) return std::vector<int>(depth, size(key, max, 0));
    const auto fits = [&](const Json& item) {
      return item.is_number_integer() && item >= 0 && item <= max;
    };
    const std::string expected = "an integer from 0 to " + std::to_string(max);
    if (!check_list(key, *found, expected, fits)) return std::vector<int>(depth);
    std::vector<int> numbers = found->get<std::vector<int>>();
    numbers.resize(depth);
    return numbers;
  }

  // Whether `list` is an array with one fitting item per block. If not, adds a fault.
  bool check_list(const char* key, const Json& list, const std::string& expected,
                  const std::function<bool(const Json&)>& fits) const {
    const int layers = blocks();
    const std::string each = expected + " for each of the " + std::to_string(layers) + " layers";
    if (!list.is_array() || std::ssize(list) != layers) {
      fault(key, each, describe(list));
      return false;
    }
    const auto other = std::ranges::find_if_not(list, fits);
    if (other != list.end()) fault(key, each, describe(*other));
    return other == list.end();
  }

  // The number that all layers with a nonzero number share.
  int common(const char* key, const std::vector<int>& numbers) const {
    int common = 0;
    for (const int number : numbers) {
      if (number == 0 || number == common) continue;
      if (common != 0) {
        fault(key, "the same number in all layers that have one",
              std::to_string(common) + " and " + std::to_string(number));
        break;
      }
      common = number;
    }
    return common;
  }

 private:
  const PublishedConfig& config_;
  const std::string architecture_;
};

HybridStyle style_of(const std::string& architecture) {
  if (architecture.starts_with("lfm2")) return HybridStyle::kLfm2;
  if (architecture == "granitehybrid") return HybridStyle::kGranite;
  if (architecture == "falcon-h1") return HybridStyle::kFalconH1;
  if (architecture.starts_with("nemotron_h")) return HybridStyle::kNemotronH;
  return HybridStyle::kQwen35;
}

constexpr const char* kQwen3Next = "qwen3next";

// Whether files of this architecture may have experts.
bool may_have_experts(const Keys& keys) {
  return keys.architecture().ends_with("moe") || keys.architecture() == "granitehybrid" ||
         keys.architecture() == kQwen3Next;
}

void refuse_options(const Keys& keys) {
  if (!may_have_experts(keys)) keys.allow_none("expert_count", "experts of this architecture are");
  keys.allow_none("attention.sliding_window", "a window of attention is");
  keys.allow("attention.causal", true);
}

// Qwen3.5's layers: as the file lists them, or with attention in the last layer of each interval.
std::string qwen_layers(const Keys& keys, int blocks) {
  const int every = keys.size_or("full_attention_interval", kInterval, 1, kMaxLayers);
  std::string layers;
  for (int i = 0; i < blocks; ++i) layers += (i + 1) % every == 0 ? 'a' : 'r';
  constexpr const char* kListed = "attention.recurrent_layers";
  const Json* const listed = keys.find(kListed);
  if (listed == nullptr) return layers;
  const auto is_bool = [](const Json& item) { return item.is_boolean(); };
  if (!keys.check_list(kListed, *listed, "true or false", is_bool)) return layers;
  for (int i = 0; i < blocks; ++i) layers[i] = (*listed)[i].get<bool>() ? 'r' : 'a';
  return layers;
}

// Reads the kinds of layers, and the numbers that determine them. The file's last layers may
// predict further values. They are not read.
void read_layers(const Keys& keys, HybridSpec& sizes) {
  const int blocks = keys.blocks();
  const int depth = blocks - keys.size_or("nextn_predict_layers", 0, 0, blocks - 1);
  const std::vector<int> kv_heads = keys.of_layers(kKvHeads, depth, kMaxWidth);
  // All layers of Qwen's models with experts have them.
  const bool may_lack = sizes.style == HybridStyle::kQwen35 && may_have_experts(keys);
  const std::vector<int> ffn = may_lack && keys.find(kFfn) == nullptr
                                   ? std::vector<int>(depth)
                                   : keys.of_layers(kFfn, depth, kMaxFfn);
  sizes.kv_heads = keys.common(kKvHeads, kv_heads);
  sizes.ffn = keys.common(kFfn, ffn);
  switch (sizes.style) {
    case HybridStyle::kQwen35:
      sizes.layers = qwen_layers(keys, blocks).substr(0, depth);
      return;
    case HybridStyle::kFalconH1:
      sizes.layers.assign(depth, 'b');
      return;
    case HybridStyle::kNemotronH:
      for (int i = 0; i < depth; ++i) {
        const char feeds = keys.architecture().ends_with("moe") ? 'e' : 'f';
        sizes.layers += ffn[i] > 0 ? feeds : kv_heads[i] > 0 ? 'a' : 'r';
      }
      return;
    default:
      for (const int heads : kv_heads) sizes.layers += heads > 0 ? 'a' : 'r';
  }
}

// Whether the first layer of one of these kinds has the tensor.
bool has(const PublishedModel& model, const HybridSpec& sizes, const char* letters,
         const std::string& tensor) {
  const size_t layer = sizes.layers.find_first_of(letters);
  return layer != std::string::npos &&
         model.has(names_of(sizes).layer(static_cast<int>(layer)) + tensor);
}

void read_rotary(const Keys& keys, HybridSpec& sizes) {
  keys.allow("rope.scaling.type", "none");
  keys.allow_one("rope.scaling.attn_factor");
  if (keys.find("rope.scaling.type") == nullptr) {  // to llama.cpp, this means "linear"
    keys.allow_one("rope.scaling.factor");
    keys.allow_one("rope.scale_linear");
  }
  sizes.rotated = keys.size_or("rope.dimension_count", sizes.head_size, 1, sizes.head_size);
  sizes.theta = keys.number_or("rope.freq_base", 10000.0, 1.0);
}

void read_attention(const PublishedModel& model, const Keys& keys, HybridSpec& sizes) {
  sizes.heads = keys.common(kHeads, keys.of_layers(kHeads, sizes.depth(), kMaxWidth));
  const int usual = std::max(sizes.width / std::max(sizes.heads, 1), 1);
  const int size = keys.size_or("attention.key_length", usual, 1, kMaxWidth);
  keys.size_or("attention.value_length", size, size, size);
  sizes.head_size = size;
  sizes.attention_scale = static_cast<float>(1.0 / std::sqrt(double(size)));
  const bool may_have_bias =
      sizes.style == HybridStyle::kGranite || sizes.style == HybridStyle::kNemotronH;
  sizes.attention_bias = may_have_bias && has(model, sizes, "a", "attn_q.bias");
  if (!may_have_bias) read_rotary(keys, sizes);
}

// Reads the keys of Gated DeltaNet and Mamba-2.
void read_states(const PublishedModel& model, const Keys& keys, HybridSpec& sizes) {
  sizes.taps = keys.size("ssm.conv_kernel", kMaxTaps, 2);
  sizes.dk = keys.size("ssm.state_size");
  sizes.key_heads = keys.size("ssm.group_count");
  sizes.recurrent_heads = keys.size("ssm.time_step_rank");
  const int inner = keys.size("ssm.inner_size");
  sizes.dv = std::max(inner / sizes.recurrent_heads, 1);
  if (inner % sizes.recurrent_heads != 0) {
    keys.fault("ssm.inner_size",
               "a multiple of the " + std::to_string(sizes.recurrent_heads) +
                   " heads of ssm.time_step_rank",
               std::to_string(inner));
  }
  if (keys.architecture() == kQwen3Next) {
    // In files of older converters, projections are joined as published.
    const bool all = has(model, sizes, "r", "ssm_in.weight");
    sizes.interleaved = all ? Interleaved::kAll : Interleaved::kRates;
  }
  if (!sizes.is_mamba2()) return;
  sizes.in_bias = has(model, sizes, "rb", "ssm_in.bias");
  sizes.out_bias = has(model, sizes, "rb", "ssm_out.bias");
  sizes.convolution_bias = has(model, sizes, "rb", "ssm_conv1d.bias");
  // The file of a Falcon-H1 with a norm does not say whether the gate precedes it.
  if (sizes.style == HybridStyle::kFalconH1) sizes.gated_norm = GatedNormKind::kNone;
}

void read_granite(const Keys& keys, HybridSpec& sizes) {
  constexpr const char* kRotated = "rope.scaling.finetuned";
  const Json* const rotated = keys.find(kRotated);
  if (rotated == nullptr || *rotated != false) {
    keys.fault(kRotated, "false, as rotary positions of this architecture are not implemented",
               rotated == nullptr ? "no such key, which means true" : describe(*rotated));
  }
  sizes.attention_scale = keys.number_or("attention.scale", sizes.attention_scale, kLeastFactor);
  HybridFactors& factors = sizes.factors;
  factors.embedding = keys.number_or("embedding_scale", 1.0, kLeastFactor);
  factors.recurrent_out = factors.attention_out = factors.ffn_out =
      keys.number_or("residual_scale", 1.0, kLeastFactor);
  factors.head = 1.0F / keys.number_or("logit_scale", 1.0, kLeastFactor);
}

void read_experts(const Keys& keys, HybridSpec& sizes) {
  const bool is_granite = sizes.style == HybridStyle::kGranite;
  ExpertSizes& experts = sizes.experts;
  experts.count = keys.size_or("expert_count", 0, is_granite ? 0 : 1, kMaxExperts);
  if (experts.count == 0) return;
  experts.chosen = keys.size(kUsedExperts, kMaxChosenExperts);
  if (is_granite) {
    experts.ffn = sizes.ffn;
    sizes.ffn = keys.size(kSharedFfn, kMaxFfn);
    return;
  }
  experts.ffn = keys.size("expert_feed_forward_length", kMaxFfn);
  if (sizes.style == HybridStyle::kQwen35) {
    experts.shared = keys.size(kSharedFfn, kMaxFfn);
    sizes.ffn = 0;
    return;
  }
  if (sizes.style == HybridStyle::kNemotronH) {
    experts.shared = keys.size(kSharedFfn, kMaxFfn);
    sizes.ffn = 0;
    keys.size_or("expert_group_count", 1, 0, 1);
    keys.size_or("expert_shared_count", 1, 1, 1);
    keys.allow_none("moe_latent_size", "a latent size of experts is");
    keys.need_true("expert_weights_norm");
  } else {
    experts.first = keys.size_or("leading_dense_block_count", 0, 0, kMaxLayers);
  }
  keys.size_or("expert_gating_func", kSigmoidRouter, kSigmoidRouter, kSigmoidRouter);
  experts.bias = true;
  experts.factor = keys.number_or("expert_weights_scale", 1.0, kLeastFactor);
}

// Checks what check_sizes() checks, and names the keys of the file.
void check(const Keys& keys, const HybridSpec& sizes, Faults& faults) {
  const std::string layers = keys.path("block_count"), heads = keys.path(kHeads),
                    kv_heads = keys.path(kKvHeads), head_size = keys.path("attention.key_length"),
                    recurrent_heads = keys.path("ssm.time_step_rank"),
                    key_heads = keys.path("ssm.group_count"), dk = keys.path("ssm.state_size"),
                    dv = keys.path("ssm.inner_size"), chosen = keys.path(kUsedExperts);
  check_sizes(sizes,
              {layers.c_str(), heads.c_str(), kv_heads.c_str(), head_size.c_str(),
               recurrent_heads.c_str(), key_heads.c_str(), dk.c_str(), dv.c_str(), chosen.c_str()},
              faults);
}

}  // namespace

void read_gguf_hybrid(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<HybridSpec>();
  const Keys keys(model.config);
  sizes.gguf = true;
  sizes.style = style_of(keys.architecture());
  refuse_options(keys);
  sizes.width = keys.size("embedding_length");
  sizes.norm_eps = keys.eps_or("attention.layer_norm_rms_epsilon",
                               keys.eps_or("attention.layer_norm_epsilon", 1e-5F));
  read_layers(keys, sizes);
  if (sizes.has_attention()) read_attention(model, keys, sizes);
  if (sizes.style == HybridStyle::kLfm2) {
    sizes.taps = keys.size("shortconv.l_cache", kMaxTaps, 2);
  } else if (sizes.has_recurrence()) {
    read_states(model, keys, sizes);
  }
  if (sizes.style == HybridStyle::kGranite) read_granite(keys, sizes);
  if (may_have_experts(keys)) read_experts(keys, sizes);
  const bool alone = sizes.style == HybridStyle::kNemotronH;
  sizes.ffn_bias = has(model, sizes, alone ? "f" : "rab", "ffn_up.bias");
  // Falcon-H1's embedding and head have their own factors, which are in the weights.
  sizes.tied = sizes.style != HybridStyle::kFalconH1 && !model.has("output.weight");
  sizes.table_rows = model.read_vocabulary("token_embd.weight", {}, spec);
  set_positions(keys.size("context_length", kMaxContext), spec);
  if (model.config.faults().ok()) check(keys, sizes, model.config.faults());
}

}  // namespace runnel
