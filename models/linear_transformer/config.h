// The linear transformer's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// Reads "model" of the root into spec.model, spec.positions and spec.head; faults are added to
// `faults`. The spec's vocabulary must have been read.
void read_linear_transformer(const Fields& root, Faults& faults, Spec& spec);

// The JSON that read_linear_transformer() reads. `sizes` must be those of `spec`.
OrderedJson model_to_json(const LinearTransformerSpec& sizes, const Spec& spec);

// The name in config.json: "elu", ...
const char* feature_map_name(FeatureMap map);

}  // namespace runnel
