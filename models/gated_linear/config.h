// The gated linear family's part of config.json, the key "model". Internal to models/.
#pragma once

#include <array>

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// The names of the mixers in bundles and published files.
inline constexpr std::array kGatedMixers = {
    Choice{"gla", GatedMixer::kGla},
    Choice{"retnet", GatedMixer::kRetNet},
    Choice{"delta_net", GatedMixer::kDeltaNet},
    Choice{"gated_deltanet", GatedMixer::kGatedDeltaNet},
    Choice{"kda", GatedMixer::kKda},
    Choice{"hgrn2", GatedMixer::kHgrn2},
};

// The keys of the sizes that check_sizes() compares, as a file names them, for messages.
struct GatedLinearKeys {
  const char *heads, *key_heads, *dk, *dv, *taps, *mixer;
};

// Checks that the sizes fit each other. Each size must have been checked by itself before. Adds the
// first fault to `faults`.
void check_sizes(const GatedLinearSpec& sizes, const GatedLinearKeys& keys, Faults& faults);

// Reads "model" of the root into spec.model and spec.head; faults are added to `faults`. The spec's
// vocabulary must have been read.
void read_gated_linear(const Fields& root, Faults& faults, Spec& spec);

// The JSON that read_gated_linear() reads. `sizes` must be those of `spec`.
OrderedJson model_to_json(const GatedLinearSpec& sizes, const Spec& spec);

}  // namespace runnel
