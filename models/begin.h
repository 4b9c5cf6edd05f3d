// The first value of a new sequence, for models that do not predict it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/spec.h"

namespace runnel {

// The given value, or a value drawn from the histogram with the random numbers of position 0
// (kernels/backend.h, sample()). The same seed and stream give the same value.
int32_t begin_value(const Begin& begin, uint64_t seed, uint32_t stream);

// Inserts the first value before `values` if the spec gives a fixed one. A value that is drawn from
// a histogram is not inserted.
void put_begin(const std::optional<Begin>& begin, std::vector<int32_t>& values);

}  // namespace runnel
