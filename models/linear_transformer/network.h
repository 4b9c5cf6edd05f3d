// The linear transformer of Katharopoulos et al. (2020) as a recurrent network: its forward pass,
// written in backend operations.
#pragma once

#include <memory>

#include "models/network.h"

namespace runnel {

// `sizes` must be those of the bundle's spec. Throws std::bad_alloc if there is not enough memory.
std::unique_ptr<Network> make_network(const LinearTransformerSpec& sizes,
                                      const NetworkParts& parts);

}  // namespace runnel
