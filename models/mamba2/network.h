// Mamba-2 (Dao and Gu 2024) as a recurrent network: the one forward pass, written in backend
// operations.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/model.h"
#include "models/network.h"

namespace runnel {

// Packs the bundle's weights for `backend`, which outlives the network and takes its recurrence,
// and allocates activations for `limits`. `sizes` are those of the bundle's spec; `precision`: of
// all weights. Throws std::bad_alloc when the memory is not there.
std::unique_ptr<Network> make_network(const Mamba2Spec& sizes, const Bundle& bundle,
                                      Backend& backend, const ModelLimits& limits,
                                      Precision precision);

}  // namespace runnel
