// The first value of a fresh sequence where the model does not predict it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/spec.h"

namespace runnel {

// The given value, or one drawn from the histogram with the random numbers of position 0
// (kernels/backend.h, sample()): the same seed and stream give the same value.
int32_t begin_value(const Begin& begin, uint64_t seed, uint32_t stream);

// Puts the first value before `values`, where the spec gives one; one that is drawn has no place
// there.
void put_begin(const std::optional<Begin>& begin, std::vector<int32_t>& values);

}  // namespace runnel
