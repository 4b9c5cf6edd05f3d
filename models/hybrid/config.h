// The hybrid family's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// Of factors, theta and limits of dt.
inline constexpr float kMaxHybridNumber = 1e12F;
inline constexpr double kLeastFactor = 1e-12;

// Of Qwen3.5, whose file does not list its layers: each fourth one has attention.
inline constexpr int kInterval = 4;

// What a file calls the sizes that check_sizes() looks at.
struct HybridKeys {
  const char *layers, *heads, *kv_heads, *head_size, *recurrent_heads, *key_heads, *dk, *dv;
};

// Checks that sizes fit one another, after each has been checked by itself. The first fault goes to
// `faults`.
void check_sizes(const HybridSpec& sizes, const HybridKeys& keys, Faults& faults);

// Sets the positions that a sequence can have, at most, and those that it has by default.
void set_positions(int64_t most, Spec& spec);

// Reads "model" of the root into spec.model, spec.positions and spec.head; what is wrong goes to
// `faults`. The spec's vocabulary has been read.
void read_hybrid(const Fields& root, Faults& faults, Spec& spec);

// What read_hybrid() reads. `sizes` are those of `spec`.
OrderedJson model_to_json(const HybridSpec& sizes, const Spec& spec);

}  // namespace runnel
