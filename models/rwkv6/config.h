// RWKV-5.2's and RWKV-6's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// Reads "model" of the root into spec.model and spec.head; what is wrong goes to `faults`. The
// spec's vocabulary has been read.
void read_rwkv6(const Fields& root, Faults& faults, Spec& spec);

// What read_rwkv6() reads. `sizes` are those of `spec`.
OrderedJson model_to_json(const Rwkv6Spec& sizes, const Spec& spec);

}  // namespace runnel
