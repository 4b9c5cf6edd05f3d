// The sizes and options that only the linear transformer (Katharopoulos et al. 2020) reads, and the
// tensors that follow from them. The softmax transformer of the same paper has the same tensors,
// and only its attention differs. Every field is documented in docs/bundle.md.
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

struct LinearTransformerSpec {
  int layers = 0;
  int width = 0;  // of the residual stream, "d_model"
  int heads = 0;
  int query_size = 0;  // per head, also of keys; dk
  int value_size = 0;  // per head; dv
  int ffn = 0;

  FeatureMap feature_map = FeatureMap::kElu;
  RandomFeatures features;  // of a random feature map, without its tensors
  bool normalize = false;   // scales queries and keys to unit length, then by sigma
  bool gate = false;        // the state forgets
  bool softmax = false;     // softmax attention, which uses none of the four fields above
  float softmax_scale = 0;  // factor of its scores
  float attention_eps = 1e-6F;
  float norm_eps = 1e-5F;
  bool final_norm = true;
  Activation activation = Activation::kRelu;

  Combine combine = Combine::kConcat;
  int value_width = 0;  // of the value embedding
  PositionKind position = PositionKind::kTable;

  // Features of a query or key, per head: the rows of S.
  int feature_size() const { return is_random(feature_map) ? features.size() : query_size; }
  // Columns of a position's vector; 0: positions have no vector.
  int position_width() const {
    if (position == PositionKind::kNone) return 0;
    return combine == Combine::kAdd ? value_width : width - value_width;
  }
};

// The recurrence of a layer of linear attention.
Recurrence recurrence_of(const LinearTransformerSpec& sizes);

// The attention of a layer with softmax, with a cache of fp32.
Attention attention_of(const LinearTransformerSpec& sizes);

// The states of each layer.
std::vector<LayerStates> layers_of(const LinearTransformerSpec& sizes);

// Every tensor of the model, by the names of fast-transformers. Loading, checking and counting use
// this list. `sizes` must be those of `spec`.
std::vector<ExpectedTensor> tensors_of(const LinearTransformerSpec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const LinearTransformerSpec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
