// The gated linear family as a recurrent network: the one forward pass, written in backend
// operations.
#pragma once

#include <memory>

#include "models/network.h"

namespace runnel {

// `sizes` are those of the bundle's spec. Throws std::bad_alloc when the memory is not there.
std::unique_ptr<Network> make_network(const GatedLinearSpec& sizes, const NetworkParts& parts);

}  // namespace runnel
