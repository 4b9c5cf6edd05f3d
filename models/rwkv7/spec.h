// The sizes and options that only RWKV-7 (Peng et al. 2025) reads, and the tensors that follow from
// them. Every field is documented in docs/bundle.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "models/expected_tensor.h"
#include "models/state/layout.h"

namespace runnel {

struct Spec;

// How a file names RWKV-7's tensors.
enum class Rwkv7Names : uint8_t {
  kOfficial,  // BlinkDL's: blocks.0.att.receptance.weight; low-rank matrices are [in, out]
  kFla,       // flash-linear-attention's: model.layers.0.attn.r_proj.weight; [out, in]
  kFlaX,      // kFla before April 2025: attn.x_x [6, width] instead of attn.x_r and others
  kGguf,      // of GGUF files: blk.0.time_mix_receptance.weight; [out, in], and x_x as kFlaX
};

// The ranks of the pairs of low-rank matrices.
struct Rwkv7Ranks {
  int decay = 0;  // w1, w2
  int rate = 0;   // a1, a2
  int value = 0;  // v1, v2; the first layer has none
  int gate = 0;   // g1, g2
};

struct Rwkv7Spec {
  Rwkv7Names names = Rwkv7Names::kOfficial;
  int layers = 0;
  int width = 0;        // of the residual stream, and of the keys of all heads together
  int heads = 0;        // divides both widths
  int value_width = 0;  // of the values of all heads together; in official models, `width`
  int ffn = 0;
  Rwkv7Ranks ranks;

  bool input_norm = true;  // ln0, which follows the embedding
  bool norm_bias = true;   // of all LayerNorms except that of heads, which always has a bias
  float norm_eps = 1e-5F;
  float head_norm_eps = 64e-5F;  // of ln_x
  float key_eps = 0.0F;          // kappa / sqrt(|kappa|^2 + eps); 0: kappa / max(|kappa|, 1e-12)

  bool tied = false;   // the head is the embedding
  int table_rows = 0;  // of embedding and head: Spec::vocabulary, then padding

  int key_size() const { return width / heads; }
  int value_size() const { return value_width / heads; }
};

// Whether the six mixes of a layer are one tensor, x_x, instead of x_r and others.
constexpr bool has_one_mix(Rwkv7Names names) {
  return names == Rwkv7Names::kFlaX || names == Rwkv7Names::kGguf;
}

// The name, in a file with `names`, of the tensor with the official name `official`.
std::string name_in_file(Rwkv7Names names, const std::string& official);

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const Rwkv7Spec& sizes);

// The states of each layer.
std::vector<LayerStates> layers_of(const Rwkv7Spec& sizes);

// Every tensor of the model, by `sizes.names`. `sizes` must be those of `spec`.
std::vector<ExpectedTensor> tensors_of(const Rwkv7Spec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const Rwkv7Spec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
