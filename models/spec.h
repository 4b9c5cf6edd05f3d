// What a bundle's config.json says: the part that engine, server and programs read of any model,
// and beside it the part of the model's family.
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

// The first value of a fresh sequence where the model does not predict it: a value, or one drawn
// from a histogram over all values.
struct Begin {
  int32_t value = 0;
  std::vector<float> histogram;  // sums to 1 up to fp32; empty: `value`
};

// How values are written as text, where they can be.
enum class TextKind { kNone, kBytes, kTokenizer };

// Every field is documented in docs/bundle.md.
struct Spec {
  std::string name;
  int vocabulary = 0;     // values are 0 .. vocabulary - 1
  int64_t positions = 0;  // inputs a sequence can have; 0: no last position
  // With attention, what `positions` may be set to; 0: it is as it is.
  int64_t most_positions = 0;
  Head head;
  std::optional<Begin> begin;
  std::vector<int32_t> eos;  // values after which a sample ends, ascending
  std::optional<ImageShape> image;
  std::vector<std::string> symbols;  // how each value is written; empty: as a number
  TextKind text = TextKind::kNone;   // kBytes: a value is a byte; kTokenizer: tokenizer.json says
  FamilySpec model;

  // Values a sequence can hold: the last position's output is one more; 0: no end.
  int64_t max_length() const { return positions == 0 ? 0 : positions + 1; }
  // Bytes of one session's state, fp32 and without padding.
  int64_t state_bytes() const;
  // Bytes of it that each position takes in caches of attention, fp32; 0: the state does not grow.
  int64_t position_bytes() const;
  // Trained numbers.
  int64_t parameters() const;
};

// Gives sequences of a model with attention this many positions; 0: as they are. A model without is
// left alone. INVALID_ARGUMENT beyond the model's most_positions.
Status set_context(int64_t context, Spec& spec);

// Every tensor that a bundle of this spec holds, no more and, but for those that are not read, no
// less.
std::vector<ExpectedTensor> expected_tensors(const Spec& spec);

// The network's shape in words, as rows of (what, text).
std::vector<std::pair<std::string, std::string>> description_of(const Spec& spec);

// As config.json and the wire have it.
constexpr const char* head_kind_name(HeadKind kind) {
  return kind == HeadKind::kCategorical ? "categorical" : "mixture_of_logistics";
}

}  // namespace runnel
