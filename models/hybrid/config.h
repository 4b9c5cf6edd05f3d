// The hybrid family's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// The largest value of a factor, theta or limit of dt, and the least value of a factor.
inline constexpr float kMaxHybridNumber = 1e12F;
inline constexpr double kLeastFactor = 1e-12;

// If a file of Qwen3.5 does not list its layers, every fourth layer has attention.
inline constexpr int kInterval = 4;

// The keys by which check_sizes() names the sizes in messages.
struct HybridKeys {
  const char *layers, *heads, *kv_heads, *head_size, *recurrent_heads, *key_heads, *dk, *dv,
      *chosen;
};

// Checks that the sizes fit each other. The range of each size must have been checked before. Adds
// the first fault to `faults`.
void check_sizes(const HybridSpec& sizes, const HybridKeys& keys, Faults& faults);

// Sets the maximum and the default number of positions of a sequence.
void set_positions(int64_t most, Spec& spec);

// Reads the key "model" of the root into spec.model, spec.positions and spec.head. Adds faults to
// `faults`. The spec's vocabulary must have been read before.
void read_hybrid(const Fields& root, Faults& faults, Spec& spec);

// Writes the JSON that read_hybrid() reads. `sizes` are the sizes of `spec`.
OrderedJson model_to_json(const HybridSpec& sizes, const Spec& spec);

}  // namespace runnel
