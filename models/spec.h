// The validated contents of a bundle's config.json: everything that decides a model's shape.
// Every field is documented in docs/bundle.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"

namespace runnel {

struct ImageShape {
  int height = 0, width = 0, channels = 0;  // channels: 1 (grey) or 3 (r g b)
  int64_t bytes() const { return int64_t{height} * width * channels; }
};

// The first value of a fresh sequence where the model does not predict it: a value, or one drawn
// from a histogram over all values.
struct Begin {
  int32_t value = 0;
  std::vector<float> histogram;  // sums to 1 up to fp32; empty: `value`
};

// How values are written as text, where they can be.
enum class TextKind { kNone, kBytes, kTokenizer };

struct Spec {
  std::string name;

  int layers = 0;
  int width = 0;  // of the residual stream, "d_model"
  int heads = 0;
  int query_size = 0;  // per head, also of keys; dk
  int value_size = 0;  // per head; dv
  int ffn = 0;

  FeatureMap feature_map = FeatureMap::kElu;
  RandomFeatures features;  // what a random map is made of, but for its tensors
  bool normalize = false;   // queries and keys: to unit length, then scaled by sigma
  bool gate = false;        // the state forgets
  float attention_eps = 1e-6F;
  float norm_eps = 1e-5F;
  bool final_norm = true;
  Activation activation = Activation::kRelu;

  int vocabulary = 0;  // values are 0 .. vocabulary - 1
  Combine combine = Combine::kConcat;
  int value_width = 0;  // of the value embedding
  PositionKind position = PositionKind::kTable;
  int64_t positions = 0;  // inputs a sequence can have; 0: no last position

  Head head;

  std::optional<Begin> begin;
  std::optional<ImageShape> image;
  std::vector<std::string> symbols;  // how each value is written; empty: as a number
  TextKind text = TextKind::kNone;   // kBytes: a value is a byte; kTokenizer: tokenizer.json says

  // Features of a query or key, per head: what the state has a row for.
  int feature_size() const { return is_random(feature_map) ? features.size() : query_size; }
  // Columns of a position's vector; 0: there is none.
  int position_width() const {
    if (position == PositionKind::kNone) return 0;
    return combine == Combine::kAdd ? value_width : width - value_width;
  }
  // Values a sequence can hold: the last position's output is one more; 0: no end.
  int64_t max_length() const { return positions == 0 ? 0 : positions + 1; }
  // Bytes of (S, z) of all layers and heads, fp32: what one session costs.
  int64_t state_bytes() const {
    return int64_t{layers} * heads * (int64_t{feature_size()} * value_size + feature_size()) * 4;
  }
  // Trained numbers: the elements of every tensor but the position table and omega.
  int64_t parameters() const;
};

// As config.json has it: "elu", ...
const char* feature_map_name(FeatureMap map);

// Parses and validates the text of a config.json. `file` only names it in errors. Unknown keys,
// missing keys, wrong types and values outside the limits are INVALID_ARGUMENT with the key's path,
// what was expected and what was found.
Result<Spec> parse_spec(std::string_view json, const std::string& file);

// The spec as the JSON that parse_spec() reads.
std::string spec_to_json(const Spec& spec);

}  // namespace runnel
