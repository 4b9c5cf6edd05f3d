// The contents of a bundle's config.json: the part that the engine, the server and programs read
// for any model, and the part of its family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "models/expected_tensor.h"
#include "models/families.h"

namespace runnel {

struct ImageShape {
  int height = 0, width = 0, channels = 0;  // channels: 1 (grey) or 3 (r g b)
  int64_t bytes() const { return int64_t{height} * width * channels; }
};

// The first value of a new sequence, for models that do not predict it: a fixed value, or one drawn
// from a histogram over all values.
struct Begin {
  int32_t value = 0;
  std::vector<float> histogram;  // sums to 1, rounded to fp32; empty: `value`
};

// How values become text. kNone: they do not.
enum class TextKind { kNone, kBytes, kTokenizer };

// Every field is documented in docs/bundle.md.
struct Spec {
  std::string name;
  int vocabulary = 0;     // values are 0 .. vocabulary - 1
  int64_t positions = 0;  // maximum inputs of a sequence; 0: no limit
  // With attention, the maximum to which `positions` may be set. 0: it cannot be changed.
  int64_t most_positions = 0;
  Head head;
  std::optional<Begin> begin;
  std::vector<int32_t> eos;  // values that end a sample, ascending
  std::optional<ImageShape> image;
  std::vector<std::string> symbols;  // how each value is written; empty: as a number
  TextKind text = TextKind::kNone;   // kBytes: a value is a byte; kTokenizer: by tokenizer.json
  FamilySpec model;

  // The maximum number of values of a sequence. It is one more than the positions, because the last
  // position still has an output. 0: no limit.
  int64_t max_length() const { return positions == 0 ? 0 : positions + 1; }
  // Bytes of one session's state, fp32 and without padding.
  int64_t state_bytes() const;
  // The part of state_bytes() that each position takes in caches of attention, in fp32. 0: the
  // state does not grow.
  int64_t position_bytes() const;
  // The number of trained parameters.
  int64_t parameters() const;
  // The part of them that one input uses: all, unless the model has experts.
  int64_t active_parameters() const;
};

// Sets the number of positions of a model with attention. 0: unchanged. A model without attention
// is not changed. INVALID_ARGUMENT if `context` is more than the model's most_positions.
Status set_context(int64_t context, Spec& spec);

// All tensors of a bundle with this spec. A bundle must have each one whose `read` is true, and no
// tensor outside of this list.
std::vector<ExpectedTensor> expected_tensors(const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const Spec& spec);

// The name in config.json and on the wire.
constexpr const char* head_kind_name(HeadKind kind) {
  return kind == HeadKind::kCategorical ? "categorical" : "mixture_of_logistics";
}

}  // namespace runnel
