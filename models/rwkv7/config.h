// RWKV-7's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// Reads "model" of the root into spec.model and spec.head; faults are added to `faults`. The spec's
// vocabulary must have been read.
void read_rwkv7(const Fields& root, Faults& faults, Spec& spec);

// The JSON that read_rwkv7() reads. `sizes` must be those of `spec`.
OrderedJson model_to_json(const Rwkv7Spec& sizes, const Spec& spec);

}  // namespace runnel
