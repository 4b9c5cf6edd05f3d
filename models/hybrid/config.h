// The hybrid family's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// The largest factor, theta or limit of dt, and the least factor.
inline constexpr float kMaxHybridNumber = 1e12F;
inline constexpr double kLeastFactor = 1e-12;

// Every fourth layer of Qwen3.5 has attention, if the file does not list its layers.
inline constexpr int kInterval = 4;

// The names that a file has for the sizes that check_sizes() compares.
struct HybridKeys {
  const char *layers, *heads, *kv_heads, *head_size, *recurrent_heads, *key_heads, *dk, *dv;
};

// Checks that the sizes fit one another. Each size has been checked by itself before. The first
// fault goes to `faults`.
void check_sizes(const HybridSpec& sizes, const HybridKeys& keys, Faults& faults);

// Sets how many positions a sequence can have at most, and how many it has by default.
void set_positions(int64_t most, Spec& spec);

// Reads the key "model" of the root into spec.model, spec.positions and spec.head. Faults go to
// `faults`. The spec's vocabulary must have been read before.
void read_hybrid(const Fields& root, Faults& faults, Spec& spec);

// Writes the JSON that read_hybrid() reads. `sizes` are the sizes of `spec`.
OrderedJson model_to_json(const HybridSpec& sizes, const Spec& spec);

}  // namespace runnel
