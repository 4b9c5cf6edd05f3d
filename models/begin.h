// The first value of a fresh sequence where the model does not predict it.
#pragma once

#include <cstdint>

#include "models/spec.h"

namespace runnel {

// The given value, or one drawn from the histogram with the random numbers of position 0
// (kernels/backend.h, sample()): the same seed and stream give the same value.
int32_t begin_value(const Begin& begin, uint64_t seed, uint32_t stream);

}  // namespace runnel
