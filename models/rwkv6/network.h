// RWKV-5.2 and RWKV-6 (Peng et al. 2024) as recurrent networks: their forward pass, written in
// backend operations.
#pragma once

#include <memory>

#include "models/network.h"

namespace runnel {

// `sizes` must be those of the bundle's spec. Throws std::bad_alloc if there is not enough memory.
std::unique_ptr<Network> make_network(const Rwkv6Spec& sizes, const NetworkParts& parts);

}  // namespace runnel
