// The sizes and options that only the gated linear family reads, and the tensors that follow from
// them. The family has GLA, RetNet, DeltaNet, Gated DeltaNet, KDA and HGRN2, in the form of
// flash-linear-attention. Every field is documented in docs/bundle.md.
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

// The mixer of a layer. The rest of a layer is the same for all of them.
enum class GatedMixer : uint8_t { kGla, kRetNet, kDeltaNet, kGatedDeltaNet, kKda, kHgrn2 };

struct GatedLinearSpec {
  GatedMixer mixer = GatedMixer::kGla;
  int layers = 0;
  int width = 0;      // of the residual stream
  int heads = 0;      // each with a state of its own
  int key_heads = 0;  // of k; with corrects() also of q, otherwise also of v and the decay
  int dk = 0;
  int dv = 0;
  int ffn = 0;
  int taps = 0;        // of the convolutions of q, k and v; 0: none
  int decay_rank = 0;  // of the decay's two matrices (GLA, KDA)
  int gate_rank = 0;   // of the output gate's two matrices (KDA)

  Activation map = Activation::kNone;  // of q and k
  KeyNorm key_norm = KeyNorm::kNone;
  bool convolution_bias = false;
  bool gate = true;       // the output gate
  bool beta = true;       // DeltaNet: beta follows from the input; false: it is 1
  bool negative = false;  // beta is at most 2 instead of 1
  float norm_eps = 1e-6F;
  float decay_limit = 0.0F;  // GLA: log w is at least -decay_limit; 0: no limit

  bool gate_in_norm_name = false;  // "g_norm_swish_gate" instead of "g_norm"
  bool joined_ffn = false;         // mlp.gate_proj also has the rows of mlp.up_proj
  bool tied = false;               // the head is the embedding
  int table_rows = 0;              // of embedding and head: Spec::vocabulary, then padding

  // Whether the mixer uses the delta rule.
  bool corrects() const { return mixer >= GatedMixer::kDeltaNet && mixer <= GatedMixer::kKda; }
  bool rotates() const { return mixer == GatedMixer::kRetNet; }
  // Columns of a layer's activations.
  int query_width() const { return (corrects() ? key_heads : heads) * dk; }
  int key_width() const { return key_heads * dk; }
  int value_width() const { return (corrects() ? heads : key_heads) * dv; }
  int output_width() const { return heads * dv; }
  int decay_width() const;  // 0: constant
};

// Names of tensors in a layer.
struct GatedLinearNames {
  const char *q, *k, *v;  // in HGRN2, k is the forget gate
  const char* norm;       // of the output
};
GatedLinearNames names_of(const GatedLinearSpec& sizes);

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const GatedLinearSpec& sizes);

// The states of each layer.
std::vector<LayerStates> layers_of(const GatedLinearSpec& sizes);

// Every tensor of the model.
std::vector<ExpectedTensor> tensors_of(const GatedLinearSpec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const GatedLinearSpec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
