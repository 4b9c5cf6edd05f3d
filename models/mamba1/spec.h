// The sizes and choices that only Mamba-1 and Falcon-Mamba read (Gu and Dao 2023), and the tensors
// that follow from them. Every field is documented in docs/bundle.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "models/expected_tensor.h"
#include "models/state/layout.h"

namespace runnel {

struct Spec;

struct Mamba1Spec {
  int layers = 0;
  int width = 0;       // of the residual stream
  int inner = 0;       // channels, each with a state of its own
  int state_size = 0;  // N: numbers of a channel's state
  int rank = 0;        // of dt
  int taps = 4;        // of the convolution

  bool bias = false;  // of in_proj and out_proj
  bool convolution_bias = true;
  float norm_eps = 1e-5F;
  float mixer_eps = 0.0F;  // of the RMSNorms of dt, B and C (Falcon-Mamba); 0: there are none

  bool tied = true;    // the head is the embedding
  int table_rows = 0;  // of embedding and head: Spec::vocabulary and padding

  // The embedding is backbone.embedding.weight; Hugging Face's is backbone.embeddings.weight.
  bool state_spaces_names = false;

  // Its name.
  const char* embedding() const {
    return state_spaces_names ? "backbone.embedding.weight" : "backbone.embeddings.weight";
  }
  // Channels that a head of the recurrence has: columns of its state.
  int head_size() const;
};

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const Mamba1Spec& sizes);

// What each layer keeps of the past.
std::vector<LayerStates> layers_of(const Mamba1Spec& sizes);

// Every tensor of the model.
std::vector<ExpectedTensor> tensors_of(const Mamba1Spec& sizes, const Spec& spec);

// The model's shape in words, as rows of (what, text).
std::vector<std::pair<std::string, std::string>> description_of(const Mamba1Spec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
