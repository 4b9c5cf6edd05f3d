// Checks that a model that has just been loaded computes finite numbers. Weights of the right
// shapes can overflow in the first step, and the sampled values are then noise.
#pragma once

#include "base/status.h"
#include "models/model.h"

namespace runnel {

// Scores a few values from an empty state, in slot 0, if possible in one step.
// - INVALID_ARGUMENT if a log-probability or a number of the state is not finite, or if a
//   log-probability is one that no trained model gives.
// - INTERNAL if the device fails or does not answer within a minute.
Status check_forward(Model& model);

}  // namespace runnel
