// The sizes and options that only Mamba-2 (Dao and Gu 2024) reads, and the tensors that follow from
// them. Every field is documented in docs/bundle.md.
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

// How a file names Mamba-2's tensors.
enum class Mamba2Names : uint8_t {
  kHuggingFace,  // backbone.embeddings.weight; also flash-linear-attention's names
  kStateSpaces,  // backbone.embedding.weight; all other names as kHuggingFace
  kGguf,         // of GGUF files: token_embd.weight, blk.0.ssm_in.weight; ssm_a is -exp(A_log)
};

struct Mamba2Spec {
  Mamba2Names names = Mamba2Names::kHuggingFace;
  int layers = 0;
  int width = 0;  // of the residual stream, "d_model"
  int heads = 0;
  int head_size = 0;   // P; dv
  int state_size = 0;  // N; dk
  int groups = 1;      // the heads of a group share B and C
  int taps = 4;        // of the convolution

  bool bias = false;  // of in_proj and out_proj
  bool convolution_bias = true;
  bool norm_before_gate = false;  // norm(y) silu(z) instead of norm(y silu(z))
  float norm_eps = 1e-5F;         // of all norms
  float dt_least = 0.0F;
  float dt_most = std::numeric_limits<float>::infinity();

  bool tied = true;    // the head is the embedding
  int table_rows = 0;  // of embedding and head: Spec::vocabulary, then padding

  // Columns of x, of [x B C], and of the output of in_proj, [z x B C dt].
  int inner() const { return heads * head_size; }
  int channels() const { return inner() + 2 * groups * state_size; }
  int projected() const { return inner() + channels() + heads; }
};

// The name, in a file with `names`, of the tensor that Hugging Face's files call `name`.
std::string name_in_file(Mamba2Names names, const std::string& name);

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const Mamba2Spec& sizes);

// The states of each layer.
std::vector<LayerStates> layers_of(const Mamba2Spec& sizes);

// Every tensor of the model, by `sizes.names`. `sizes` must be those of `spec`.
std::vector<ExpectedTensor> tensors_of(const Mamba2Spec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const Mamba2Spec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
