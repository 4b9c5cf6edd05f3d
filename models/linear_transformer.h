// The linear transformer of Katharopoulos et al. (2020) as a recurrent network: the one forward
// pass, written in backend operations.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/model.h"

namespace runnel {

// Packs the bundle's weights for `backend`, allocates `limits.slots` states and all activations,
// and is ready to step: nothing is allocated later. `backend` outlives the model. `precision`: of
// the weights of the layers.
// INVALID_ARGUMENT when prompts go in chunks and limits.values has no room for one behind
// limits.rows. RESOURCE_EXHAUSTED when the memory is not there, naming how much was asked for.
Result<std::unique_ptr<Model>> make_linear_transformer(const Bundle& bundle, Backend& backend,
                                                       const ModelLimits& limits,
                                                       Precision precision = Precision::kFp32);

}  // namespace runnel
