// A model that is a recurrent network. It keeps states in slots, lays out batches, runs steps and
// collects results. It uses the network only through network.h.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "models/model.h"
#include "models/network.h"

namespace runnel {

// Allocates `limits.slots` states and everything that a batch needs; nothing is allocated later.
// `backend` must outlive the model. `network` must have been made for the same `backend`, `layout`
// and `limits`. Throws std::bad_alloc if there is not enough memory.
std::unique_ptr<Model> make_recurrent_model(const Spec& spec, Backend& backend,
                                            const ModelLimits& limits, const StateLayout& layout,
                                            std::unique_ptr<Network> network);

}  // namespace runnel
