// The sizes and options that only Mamba-1 and Falcon-Mamba (Gu and Dao 2023) read, and the tensors
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
  int inner = 0;       // the number of channels, each of which has its own state
  int state_size = 0;  // N: numbers in the state of a channel
  int rank = 0;        // of dt
  int taps = 4;        // of the convolution

  bool bias = false;  // of in_proj and out_proj
  bool convolution_bias = true;
  float norm_eps = 1e-5F;
  float mixer_eps = 0.0F;  // of the RMSNorms of dt, B and C (Falcon-Mamba); 0: no such norms

  bool tied = true;    // the head is the embedding
  int table_rows = 0;  // of embedding and head: Spec::vocabulary, then padding

  // True if the embedding has the name backbone.embedding.weight, as in files of state-spaces. In
  // Hugging Face's files its name is backbone.embeddings.weight.
  bool state_spaces_names = false;

  // The name of the embedding.
  const char* embedding() const {
    return state_spaces_names ? "backbone.embedding.weight" : "backbone.embeddings.weight";
  }
  // The number of channels in one head of the recurrence. Each channel is a column of the head's
  // state.
  int head_size() const;
};

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const Mamba1Spec& sizes);

// The states of each layer.
std::vector<LayerStates> layers_of(const Mamba1Spec& sizes);

// Every tensor of the model.
std::vector<ExpectedTensor> tensors_of(const Mamba1Spec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const Mamba1Spec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
