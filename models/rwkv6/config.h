// RWKV-5.2's and RWKV-6's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// Reads "model" of the root into spec.model and spec.head; faults are added to `faults`. The spec's
// vocabulary must have been read.
void read_rwkv6(const Fields& root, Faults& faults, Spec& spec);

// The JSON that read_rwkv6() reads. `sizes` must be those of `spec`.
OrderedJson model_to_json(const Rwkv6Spec& sizes, const Spec& spec);

}  // namespace runnel
