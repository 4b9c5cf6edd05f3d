// Mamba-2's part of config.json, the key "model". Internal to models/.
#pragma once

#include "base/json_fields.h"
#include "models/spec.h"

namespace runnel {

// The largest limit of dt. A larger one in a published file counts as no limit.
inline constexpr float kMaxTimeStep = 1e9F;

// Adds a fault if the limits of dt, model.dt_least and model.dt_most, are in the wrong order.
void check_time_step_limit(float least, float most, Faults& faults);

// Reads "model" of the root into spec.model and spec.head; faults are added to `faults`. The spec's
// vocabulary must have been read.
void read_mamba2(const Fields& root, Faults& faults, Spec& spec);

// The JSON that read_mamba2() reads. `sizes` must be those of `spec`.
OrderedJson model_to_json(const Mamba2Spec& sizes, const Spec& spec);

}  // namespace runnel
