// The tensors of a hybrid model's layers, packed for a backend. Internal to models/hybrid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/experts.h"
#include "models/layered_network.h"

namespace runnel::hybrid {

// A product whose output is multiplied by a row of factors, or by 1 if the matrix is empty.
struct Scaled {
  Weight weight;
  Matrix factors;
};

struct RecurrentMixer {
  Scaled in;             // Mamba-2: [z x B C dt]; Gated DeltaNet: [q k v]; a convolution: x
  Weight z, rate, dt;    // of Gated DeltaNet
  Weight before, after;  // of a convolution: the gates of its input and of its output
  Matrix taps, bias;
  Convolution convolution;
  Matrix decay_rate, decay_bias, skip;
  Recurrence recurrence;
  Matrix norm;  // of the output
  Scaled out;
  int64_t state = 0, inputs = 0;  // bytes from the start of a slot
};

struct AttentionMixer {
  Weight q, v, gate;
  Scaled k;
  Matrix query_norm, key_norm;
  Attention attention;
  Scaled out;
  int64_t cache = 0;  // bytes from the start of a slot
};

// The experts of a layer.
struct ExpertLayers {
  Weight scores;  // an output for each expert, the shared one last
  Matrix bias;    // of the router; empty: none
  std::vector<Weight> gate, up, down;
  Buffer table;  // of the backend, for `experts`

  Experts experts(const HybridSpec& sizes) const;
};

struct FeedForward {
  Scaled gate;
  Weight up;
  Scaled down;
};

struct Layer {
  Matrix recurrent_norm, attention_norm;  // of the input of each mixer
  std::optional<RecurrentMixer> recurrent;
  std::optional<AttentionMixer> attention;
  Matrix ffn_norm;
  std::optional<FeedForward> feed_forward;
  std::optional<ExpertLayers> experts;
};

// Reads the layers of a bundle.
class Loader {
 public:
  // All arguments must outlive the object. `angles` are the rotary angles of all positions.
  Loader(const HybridSpec& sizes, const NetworkParts& parts, View angles)
      : sizes_(sizes),
        names_(names_of(sizes)),
        weights_(parts.bundle, parts.backend),
        parts_(parts),
        angles_(angles) {}

  const WeightReader& weights() const { return weights_; }
  const HybridNames& names() const { return names_; }
  Layer layer(int index) const;
  // The scale of the norm `tensor` times `factor`, repeated for `heads` heads. Adds 1 if the style
  // is zero-centred.
  Matrix norm(const std::string& tensor, float factor = 1.0F, int heads = 1) const;

 private:
  RecurrentMixer recurrent(int index) const;
  void read_mamba2(const std::string& name, RecurrentMixer& mixer) const;
  void read_delta(int index, RecurrentMixer& mixer) const;
  void read_projections(const std::string& layer, RecurrentMixer& mixer) const;
  void read_convolution(const std::string& name, RecurrentMixer& mixer) const;
  AttentionMixer attention(int index) const;
  FeedForward feed_forward(int index) const;
  ExpertLayers experts(int index) const;
  void add_shared(const std::string& layer, ExpertLayers& made) const;
  Weight scores(const std::string& layer) const;
  std::vector<Weight> pack_experts(const std::string& layer, const char* name, int64_t first,
                                   int64_t rows, int64_t every) const;
  // exp(A_log). A GGUF file has -exp(A_log) instead.
  std::vector<float> rates(const std::string& tensor) const;

  Weight pack(const std::string& name, bool bias) const;
  Weight pack_rows(const std::string& name, bool bias, int64_t first, int64_t rows,
                   int64_t every = 0) const;
  Scaled scaled(Weight weight, float factor) const;
  Matrix row_of(const std::vector<float>& numbers) const { return weights_.matrix_of(numbers, 1); }

  const HybridSpec& sizes_;
  const HybridNames names_;
  const WeightReader weights_;
  const NetworkParts& parts_;
  const View angles_;
};

// fp32 [positions, dims] for Attention::angles.
std::vector<float> rotary_angles(int64_t positions, int dims, double theta);

}  // namespace runnel::hybrid
