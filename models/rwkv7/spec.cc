#include "models/rwkv7/spec.h"

#include <array>
#include <string_view>

#include "models/spec.h"

namespace runnel {
namespace {

// The beginnings of official names, within a layer or not, and their replacements in files of
// flash-linear-attention or GGUF. The first one that matches is used.
struct Prefix {
  std::string_view official, other;
};
constexpr std::array kTop = {Prefix{"emb.", "model.embeddings."}, Prefix{"ln_out.", "model.norm."},
                             Prefix{"head.", "lm_head."}};
constexpr std::array kInLayer = {
    Prefix{"ln0.", "pre_norm."},
    Prefix{"ln1.", "attn_norm."},
    Prefix{"ln2.", "ffn_norm."},
    Prefix{"att.receptance.", "attn.r_proj."},
    Prefix{"att.key.", "attn.k_proj."},
    Prefix{"att.value.", "attn.v_proj."},
    Prefix{"att.output.", "attn.o_proj."},
    Prefix{"att.ln_x.", "attn.g_norm."},
    Prefix{"att.w0", "attn.w_lora.lora.2.bias"},
    Prefix{"att.a0", "attn.a_lora.lora.2.bias"},
    Prefix{"att.v0", "attn.v_lora.lora.2.bias"},
    Prefix{"att.w1", "attn.w_lora.lora.0.weight"},
    Prefix{"att.a1", "attn.a_lora.lora.0.weight"},
    Prefix{"att.v1", "attn.v_lora.lora.0.weight"},
    Prefix{"att.g1", "attn.g_lora.lora.0.weight"},
    Prefix{"att.w2", "attn.w_lora.lora.2.weight"},
    Prefix{"att.a2", "attn.a_lora.lora.2.weight"},
    Prefix{"att.v2", "attn.v_lora.lora.2.weight"},
    Prefix{"att.g2", "attn.g_lora.lora.2.weight"},
    Prefix{"att.", "attn."},
};

// The same for GGUF files.
constexpr std::array kGgufTop = {Prefix{"emb.", "token_embd."}, Prefix{"ln_out.", "output_norm."},
                                 Prefix{"head.", "output."}};
constexpr std::array kGgufInLayer = {
    Prefix{"ln1.", "attn_norm."},
    Prefix{"ln2.", "attn_norm_2."},
    Prefix{"att.receptance.", "time_mix_receptance."},
    Prefix{"att.key.", "time_mix_key."},
    Prefix{"att.value.", "time_mix_value."},
    Prefix{"att.output.", "time_mix_output."},
    Prefix{"att.ln_x.", "time_mix_ln."},
    Prefix{"att.x_x", "time_mix_lerp_fused.weight"},
    Prefix{"ffn.x_k", "channel_mix_lerp_k.weight"},
    Prefix{"ffn.key.", "channel_mix_key."},
    Prefix{"ffn.value.", "channel_mix_value."},
};

// time_mix_w0.weight for att.w0, and so on.
std::string in_gguf(const std::string& layer, std::string_view name) {
  if (layer == "0." && name.starts_with("ln0.")) {
    return "token_embd_norm." + std::string(name.substr(4));
  }
  for (const Prefix& prefix : kGgufInLayer) {
    if (!name.starts_with(prefix.official)) continue;
    return "blk." + layer + std::string(prefix.other) +
           std::string(name.substr(prefix.official.size()));
  }
  return "blk." + layer + "time_mix_" + std::string(name.substr(4)) + ".weight";
}

template <size_t N>
std::string translated(std::string_view name, const std::array<Prefix, N>& table) {
  for (const Prefix& prefix : table) {
    if (!name.starts_with(prefix.official)) continue;
    return std::string(prefix.other) + std::string(name.substr(prefix.official.size()));
  }
  return std::string(name);
}

// Lists tensors by their official names.
class Lister {
 public:
  explicit Lister(const Rwkv7Spec& sizes) : sizes_(sizes) {}

  void add(const std::string& name, std::vector<int64_t> shape) {
    tensors_.push_back({name_in_file(sizes_.names, name), std::move(shape)});
  }

  void layer_norm(const std::string& name) {
    add(name + ".weight", {sizes_.width});
    if (sizes_.norm_bias) add(name + ".bias", {sizes_.width});
  }

  void vector(const std::string& name, int64_t width) {
    add(name, {width});
    tensors_.back().vector = true;
  }

  // Adds the weights of NAME2 act(NAME1 x) and, by default, the bias NAME0.
  void low_rank(const std::string& name, int64_t rank, int64_t out, bool bias = true) {
    const int64_t in = sizes_.width;
    const bool is_official = sizes_.names == Rwkv7Names::kOfficial;
    add(name + "1", is_official ? std::vector{in, rank} : std::vector{rank, in});
    add(name + "2", is_official ? std::vector{rank, out} : std::vector{out, rank});
    if (bias) vector(name + "0", out);
  }

  void mixer(const std::string& att, bool is_first) {
    const int64_t width = sizes_.width;
    const int64_t values = sizes_.value_width;
    if (has_one_mix(sizes_.names)) {
      add(att + "x_x", {6, width});
    } else {
      for (const char letter : std::string_view("rwkvag")) vector(att + "x_" + letter, width);
    }
    for (const char* const name : {"k_k", "k_a"}) vector(att + name, width);
    if (sizes_.names == Rwkv7Names::kGguf) {
      vector(att + "r_k", width);
    } else {
      add(att + "r_k", {sizes_.heads, sizes_.key_size()});
    }
    low_rank(att + "w", sizes_.ranks.decay, width);
    low_rank(att + "a", sizes_.ranks.rate, width);
    low_rank(att + "g", sizes_.ranks.gate, values, false);
    const size_t read = tensors_.size();
    low_rank(att + "v", sizes_.ranks.value, values);
    for (size_t i = read; i < tensors_.size(); ++i) tensors_[i].read = !is_first;
    add(att + "receptance.weight", {width, width});
    add(att + "key.weight", {width, width});
    add(att + "value.weight", {values, width});
    add(att + "output.weight", {width, values});
    add(att + "ln_x.weight", {values});
    add(att + "ln_x.bias", {values});
  }

  void layer(int index) {
    const std::string block = "blocks." + std::to_string(index) + ".";
    if (index == 0 && sizes_.input_norm) layer_norm(block + "ln0");
    layer_norm(block + "ln1");
    mixer(block + "att.", index == 0);
    layer_norm(block + "ln2");
    vector(block + "ffn.x_k", sizes_.width);
    add(block + "ffn.key.weight", {sizes_.ffn, sizes_.width});
    add(block + "ffn.value.weight", {sizes_.width, sizes_.ffn});
  }

  std::vector<ExpectedTensor> tensors() && { return std::move(tensors_); }

 private:
  const Rwkv7Spec& sizes_;
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::string name_in_file(Rwkv7Names names, const std::string& official) {
  if (names == Rwkv7Names::kOfficial) return official;
  constexpr std::string_view kBlocks = "blocks.";
  const bool is_gguf = names == Rwkv7Names::kGguf;
  if (!official.starts_with(kBlocks)) {
    return is_gguf ? translated(official, kGgufTop) : translated(official, kTop);
  }
  const size_t rest = official.find('.', kBlocks.size()) + 1;
  const std::string layer = official.substr(kBlocks.size(), rest - kBlocks.size());
  const std::string_view name = std::string_view(official).substr(rest);
  return is_gguf ? in_gguf(layer, name) : "model.layers." + layer + translated(name, kInLayer);
}

Recurrence recurrence_of(const Rwkv7Spec& sizes) {
  return {.heads = sizes.heads,
          .dk = sizes.key_size(),
          .dv = sizes.value_size(),
          .terms = Rwkv7Terms{.eps = sizes.key_eps}};
}

std::vector<LayerStates> layers_of(const Rwkv7Spec& sizes) {
  const LayerStates layer = {recurrence_of(sizes), ShiftState{"time_input", sizes.width},
                             ShiftState{"channel_input", sizes.width}};
  return std::vector<LayerStates>(sizes.layers, layer);
}

std::vector<ExpectedTensor> tensors_of(const Rwkv7Spec& sizes, const Spec& /*spec*/) {
  Lister lister(sizes);
  lister.add("emb.weight", {sizes.table_rows, sizes.width});
  for (int i = 0; i < sizes.layers; ++i) lister.layer(i);
  lister.layer_norm("ln_out");
  if (!sizes.tied) lister.add("head.weight", {sizes.table_rows, sizes.width});
  return std::move(lister).tensors();
}

std::vector<std::pair<std::string, std::string>> description_of(const Rwkv7Spec& sizes,
                                                                const Spec& /*spec*/) {
  const auto text = [](int number) { return std::to_string(number); };
  return {{"size", text(sizes.layers) + " layers, width " + text(sizes.width) + ", " +
                       text(sizes.heads) + " heads (keys of " + text(sizes.key_size()) +
                       ", values of " + text(sizes.value_size()) + "), feed-forward " +
                       text(sizes.ffn)},
          {"recurrence", "RWKV-7"},
          {"head", sizes.tied ? "categorical, the embedding" : "categorical"},
          {"length", "no end"}};
}

}  // namespace runnel
