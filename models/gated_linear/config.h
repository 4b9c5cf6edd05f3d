// The gated linear family's part of config.json, the key "model". Internal to models/.
#pragma once

#include <array>

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// As bundles and published files name them.
inline constexpr std::array kGatedMixers = {
    Choice{"gla", GatedMixer::kGla},
    Choice{"retnet", GatedMixer::kRetNet},
    Choice{"delta_net", GatedMixer::kDeltaNet},
    Choice{"gated_deltanet", GatedMixer::kGatedDeltaNet},
    Choice{"kda", GatedMixer::kKda},
    Choice{"hgrn2", GatedMixer::kHgrn2},
};

// What a file calls the sizes that check_sizes() looks at.
struct GatedLinearKeys {
  const char *heads, *key_heads, *dk, *dv, *taps, *mixer;
};

// Checks that sizes fit one another, after each has been checked by itself. The first fault goes
// to `faults`.
void check_sizes(const GatedLinearSpec& sizes, const GatedLinearKeys& keys, Faults& faults);

// Reads "model" of the root into spec.model and spec.head; what is wrong goes to `faults`. The
// spec's vocabulary has been read.
void read_gated_linear(const Fields& root, Faults& faults, Spec& spec);

// What read_gated_linear() reads. `sizes` are those of `spec`.
OrderedJson model_to_json(const GatedLinearSpec& sizes, const Spec& spec);

}  // namespace runnel
