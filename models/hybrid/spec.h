// Models that mix recurrent layers with softmax attention, as their makers publish them: Qwen3.5
// (text), LFM2, Granite-4.0-H, Falcon-H1 and Nemotron-H. Every field is documented in
// docs/bundle.md.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "models/expected_tensor.h"
#include "models/state/layout.h"

namespace runnel {

struct Spec;

// The published architecture that the layers follow. It decides the recurrent mixer, the
// feed-forward and the names of tensors.
enum class HybridStyle : uint8_t { kQwen35, kLfm2, kGranite, kFalconH1, kNemotronH };

// The order of the gate and the norm of Mamba-2's output. kNone: a gate without a norm.
enum class GatedNormKind : uint8_t { kNone, kGateFirst, kNormFirst };

// Projections of Gated DeltaNet that one tensor has for each key head in turn (Qwen3-Next).
enum class Interleaved : uint8_t {
  kNone,
  kRates,  // b and a
  kAll,    // b and a; q, k, v and z
};

// Factors that scale activations. Each applies to the input or the output of one part of the
// network.
struct HybridFactors {
  float embedding = 1.0F;
  float recurrent_in = 1.0F, recurrent_out = 1.0F;
  float attention_in = 1.0F, attention_out = 1.0F;
  float key = 1.0F;
  float ffn_gate = 1.0F, ffn_out = 1.0F;
  float z = 1.0F, x = 1.0F, b = 1.0F, c = 1.0F, dt = 1.0F;  // of Mamba-2's projection
  float head = 1.0F;
};

// The experts of feed-forwards (kernels/experts.h). count 0: none.
struct ExpertSizes {
  int count = 0;
  int chosen = 0;       // by each input
  int ffn = 0;          // the hidden width of an expert
  int first = 0;        // the first layer that has experts
  int shared = 0;       // the hidden width of the expert that all inputs use; 0: none
  bool bias = false;    // the router has a bias
  float factor = 1.0F;  // of the experts' output
};

struct HybridSpec {
  HybridStyle style = HybridStyle::kQwen35;
  // A letter for each layer: r recurrent, a attention, b both side by side, f feed-forward alone, e
  // feed-forward with experts alone. Except in Nemotron-H, every layer also has a feed-forward.
  std::string layers;
  int width = 0;  // of the residual stream
  int ffn = 0;

  int heads = 0, kv_heads = 0, head_size = 0;  // of attention
  int rotated = 0;                             // numbers of a head that are rotated; 0: none
  float theta = 10000.0F;
  float attention_scale = 1.0F;
  bool attention_bias = false;

  // Of the recurrent mixer: Gated DeltaNet (Qwen3.5), a convolution (LFM2) or Mamba-2 (others).
  int recurrent_heads = 0;
  int key_heads = 0;  // of keys and queries; Mamba-2's groups
  int dk = 0, dv = 0;
  int taps = 0;
  bool in_bias = false, out_bias = false, convolution_bias = false;
  GatedNormKind gated_norm = GatedNormKind::kGateFirst;
  float dt_least = 0.0F;
  float dt_most = std::numeric_limits<float>::infinity();

  bool ffn_bias = false;
  ExpertSizes experts;
  float norm_eps = 1e-6F;
  HybridFactors factors;
  Interleaved interleaved = Interleaved::kNone;
  bool nested = false;  // Qwen3.5: tensors lie under model.language_model
  bool gguf = false;    // the file was written by llama.cpp's converter
  bool tied = false;    // the head is the embedding
  int table_rows = 0;   // of the embedding and of the head: Spec::vocabulary, then padding

  int depth() const { return static_cast<int>(layers.size()); }
  bool is_recurrent(int layer) const { return layers[layer] == 'r' || layers[layer] == 'b'; }
  bool attends(int layer) const { return layers[layer] == 'a' || layers[layer] == 'b'; }
  bool feeds(int layer) const {
    return style != HybridStyle::kNemotronH || layers[layer] == 'f' || layers[layer] == 'e';
  }
  // Whether a layer's feed-forward has experts.
  bool mixes(int layer) const {
    if (style == HybridStyle::kNemotronH) return layers[layer] == 'e';
    return experts.count > 0 && layer >= experts.first;
  }
  // The hidden width of the part of a feed-forward that all inputs use in full. 0: none.
  int dense_ffn(int layer) const {
    if (!feeds(layer)) return 0;
    if (!mixes(layer) || style == HybridStyle::kGranite) return ffn;
    return style == HybridStyle::kNemotronH ? experts.shared : 0;
  }
  bool has(char letter) const { return layers.find(letter) != std::string::npos; }
  // Whether any layer has a recurrence, and whether any has attention.
  bool has_recurrence() const { return has('r') || has('b'); }
  bool has_attention() const { return has('a') || has('b'); }

  bool is_qwen3_next() const { return interleaved != Interleaved::kNone; }
  bool is_mamba2() const { return style >= HybridStyle::kGranite; }
  bool gates_attention() const { return style == HybridStyle::kQwen35; }
  bool norms_heads() const { return style <= HybridStyle::kLfm2; }  // of queries and keys
  // Whether 1 must be added to the norms' scales. GGUF files have it added already.
  bool zero_centred() const { return style == HybridStyle::kQwen35 && !gguf; }
  // Whether one tensor has the rows of a gate and then those of `up`.
  bool joined_ffn() const { return style == HybridStyle::kGranite && !gguf; }
  bool joined_experts() const {
    return (style == HybridStyle::kQwen35 && !is_qwen3_next() && !gguf) || joined_ffn();
  }
  // Whether a router decides how much the shared expert of an input counts.
  bool routes_shared() const { return style == HybridStyle::kQwen35; }
  bool gates_ffn() const { return style != HybridStyle::kNemotronH; }

  // Columns of activations.
  int attended() const { return heads * head_size; }
  int keys() const { return key_heads * dk; }
  int inner() const { return recurrent_heads * dv; }
  // Columns of the recurrent mixer's convolution.
  int channels() const { return style == HybridStyle::kLfm2 ? width : 2 * keys() + inner(); }
  // Columns of Mamba-2's projection, [z x B C dt].
  int projected() const { return inner() + channels() + recurrent_heads; }
};

// Calls visit(key, factor) for every factor.
template <typename Factors, typename Visit>
void each_factor(Factors& factors, const Visit& visit) {
  visit("embedding", factors.embedding);
  visit("recurrent_in", factors.recurrent_in);
  visit("recurrent_out", factors.recurrent_out);
  visit("attention_in", factors.attention_in);
  visit("attention_out", factors.attention_out);
  visit("key", factors.key);
  visit("ffn_gate", factors.ffn_gate);
  visit("ffn_out", factors.ffn_out);
  visit("z", factors.z);
  visit("x", factors.x);
  visit("b", factors.b);
  visit("c", factors.c);
  visit("dt", factors.dt);
  visit("head", factors.head);
}

// Names of tensors, without ".weight". Those of a layer follow its prefix.
struct HybridNames {
  std::string table, layers, final_norm;
  const char* head;
  const char *norm, *ffn_norm;  // ffn_norm is complete: no ".weight" is added
  // Each of these follows the prefix `attention`.
  const char *attention, *query, *key, *value, *attention_out, *query_norm, *key_norm;
  // Each of these follows the prefix `recurrent`. `rates`, `dt_bias` and `skip` are complete: no
  // ".weight" is added.
  const char *recurrent, *in, *convolution, *rates, *dt_bias, *skip, *gated_norm, *out;
  // Projections of Gated DeltaNet. An interleaved tensor `qkv` also has the rows of z, and an
  // interleaved `rate` those of dt.
  const char *qkv, *z, *rate, *dt;
  // If joined_ffn(), the tensor `ffn_gate` also has the rows of ffn_up.
  const char *ffn_gate, *ffn_up, *ffn_down;
  // Names of experts are complete: no ".weight" is added. A name has one of two forms:
  // - With '*' it names a tensor for each expert. expert_name() replaces '*' with the index of the
  //   expert.
  // - Without '*' it names one tensor, which has the matrices of all experts.
  // If joined_experts(), the tensor `expert_gate` also has the rows of expert_up.
  const char *router, *router_bias, *expert_gate, *expert_up, *expert_down;
  const char *shared_router, *shared_gate, *shared_up, *shared_down;

  // "model.layers.3."
  std::string layer(int index) const { return layers + std::to_string(index) + "."; }
};
HybridNames names_of(const HybridSpec& sizes);

// The name of a tensor of experts, with `expert` in place of '*'.
std::string expert_name(std::string name, int expert);

// The operations of a layer, without their tensors.
Recurrence recurrence_of(const HybridSpec& sizes);
Attention attention_of(const HybridSpec& sizes);

// The states of each layer: S and the convolution's inputs, then the attention's cache.
std::vector<LayerStates> layers_of(const HybridSpec& sizes);

// Every tensor of the model.
std::vector<ExpectedTensor> tensors_of(const HybridSpec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const HybridSpec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
