// Keys that order values by their likelihood, or experts by their scores.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementary.h"
#include "kernels/device.h"

namespace runnel::cuda {

// A larger likelihood gives a larger key. If likelihoods are equal, the lower value has the larger
// key. No key is 0.
RUNNEL_DEVICE constexpr uint64_t rank_key(float likelihood, int32_t value) {
  return (uint64_t{order_key(likelihood)} << 32) | ~static_cast<uint32_t>(value);
}
RUNNEL_DEVICE constexpr int32_t ranked_value(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

}  // namespace runnel::cuda
