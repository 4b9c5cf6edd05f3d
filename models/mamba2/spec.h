// The sizes and choices that only Mamba-2 reads (Dao and Gu 2024), and the tensors that follow from
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
  kHuggingFace,  // backbone.embeddings.weight; flash-linear-attention's, too
  kStateSpaces,  // backbone.embedding.weight; all else as kHuggingFace
  kGguf,         // of GGUF files: token_embd.weight, blk.0.ssm_in.weight; ssm_a is -exp(A_log)
};

struct Mamba2Spec {
  Mamba2Names names = Mamba2Names::kHuggingFace;
  int layers = 0;
  int width = 0;  // of the residual stream, "d_model"
  int heads = 0;
  int head_size = 0;   // P; dv
  int state_size = 0;  // N; dk
  int groups = 1;      // of heads that share B and C
  int taps = 4;        // of the convolution

  bool bias = false;  // of in_proj and out_proj
  bool convolution_bias = true;
  bool norm_before_gate = false;  // norm(y) silu(z) instead of norm(y silu(z))
  float norm_eps = 1e-5F;         // of all norms
  float dt_least = 0.0F;
  float dt_most = std::numeric_limits<float>::infinity();

  bool tied = true;    // the head is the embedding
  int table_rows = 0;  // of embedding and head: Spec::vocabulary and padding behind it

  // Columns of x, of [x B C] and of what in_proj gives: [z x B C dt].
  int inner() const { return heads * head_size; }
  int channels() const { return inner() + 2 * groups * state_size; }
  int projected() const { return inner() + channels() + heads; }
};

// What the tensor that Hugging Face's files call `name` is called in a file with `names`.
std::string name_in_file(Mamba2Names names, const std::string& name);

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const Mamba2Spec& sizes);

// What each layer keeps of the past.
std::vector<LayerStates> layers_of(const Mamba2Spec& sizes);

// Every tensor of the model, by `sizes.names`. `sizes` are those of `spec`.
std::vector<ExpectedTensor> tensors_of(const Mamba2Spec& sizes, const Spec& spec);

// The model's shape in words, as rows of (what, text).
std::vector<std::pair<std::string, std::string>> description_of(const Mamba2Spec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
