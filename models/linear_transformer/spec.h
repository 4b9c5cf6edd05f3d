// The sizes and choices that only the linear transformer reads (Katharopoulos et al. 2020), and the
// tensors that follow from them. The softmax transformer of the same paper has the same tensors and
// differs in its attention alone. Every field is documented in docs/bundle.md.
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
  RandomFeatures features;  // of a random map, without its tensors
  bool normalize = false;   // queries and keys: to unit length, then scaled by sigma
  bool gate = false;        // the state forgets
  bool softmax = false;     // softmax attention instead, without any of the above
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
  // Columns of a position's vector; 0: there is none.
  int position_width() const {
    if (position == PositionKind::kNone) return 0;
    return combine == Combine::kAdd ? value_width : width - value_width;
  }
};

// The recurrence of a layer of linear attention.
Recurrence recurrence_of(const LinearTransformerSpec& sizes);

// The attention of a layer with softmax, with a cache of fp32.
Attention attention_of(const LinearTransformerSpec& sizes);

// What each layer keeps of the past.
std::vector<LayerStates> layers_of(const LinearTransformerSpec& sizes);

// Every tensor of the model, by the names of fast-transformers: the one list that loading, checking
// and counting go by. `sizes` are those of `spec`.
std::vector<ExpectedTensor> tensors_of(const LinearTransformerSpec& sizes, const Spec& spec);

// The model's shape in words, as rows of (what, text).
std::vector<std::pair<std::string, std::string>> description_of(const LinearTransformerSpec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
