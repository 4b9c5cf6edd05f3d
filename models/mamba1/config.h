// Mamba-1's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// Reads "model" of the root into spec.model and spec.head; what is wrong goes to `faults`. The
// spec's vocabulary has been read.
void read_mamba1(const Fields& root, Faults& faults, Spec& spec);

// What read_mamba1() reads. `sizes` are those of `spec`.
OrderedJson model_to_json(const Mamba1Spec& sizes, const Spec& spec);

}  // namespace runnel
