// A model that is a recurrent network: slots of states, batches laid out, stepped and collected.
// Knows nothing of the network but network.h.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "models/model.h"
#include "models/network.h"

namespace runnel {

// Allocates `limits.slots` states and all that a batch needs; nothing is allocated later. `backend`
// outlives the model, and `network` has been made for it, `layout` and `limits`. Throws
// std::bad_alloc when the memory is not there.
std::unique_ptr<Model> make_recurrent_model(const Spec& spec, Backend& backend,
                                            const ModelLimits& limits, const StateLayout& layout,
                                            std::unique_ptr<Network> network);

}  // namespace runnel
