// Whether a model that has just been loaded computes with numbers: weights can have the right
// shapes and overflow in the first step, and what is then sampled is noise.
#pragma once

#include "base/status.h"
#include "models/model.h"

namespace runnel {

// Scores a few values from an empty state, in slot 0, one step for each. INVALID_ARGUMENT when a
// log-probability or a number of the state is not finite, or a log-probability is one that no
// trained model gives; INTERNAL when the device fails or does not answer within a minute.
Status check_forward(Model& model);

}  // namespace runnel
