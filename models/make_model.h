// From a bundle to a model that is ready to step, whatever its family.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/model.h"

namespace runnel {

// Sessions that there are at most where nobody says how many.
inline constexpr int kMostUnasked = 256;

// The slots of as many sessions as fit half of the free memory, 1 to kMostUnasked. A session has
// `each` slots, which take `session_bytes` together.
int slots_that_fit(int64_t free_bytes, int64_t session_bytes, int each);

// Packs the bundle's weights for `backend`, which outlives the model, and allocates `limits.slots`
// states and all activations: nothing is allocated later. Where that is 0, there are as many slots
// as slots_that_fit() says of what is free once the weights are packed.
// `precision`: of the weights of the layers. `cache`: what attention keeps keys and values in, kF32
// or kBF16; by default bf16, and fp32 with a precision of fp32. INVALID_ARGUMENT when prompts go in
// chunks and limits.values has no room for one after limits.rows, and, naming file and tensor, when
// an element of a tensor is a NaN or an infinity. FAILED_PRECONDITION when the
// backend does not run this family or these sizes. RESOURCE_EXHAUSTED when the memory is not there,
// naming how much was asked for.
Result<std::unique_ptr<Model>> make_model(const Bundle& bundle, Backend& backend,
                                          const ModelLimits& limits,
                                          Precision precision = Precision::kFp32,
                                          std::optional<DType> cache = {});

}  // namespace runnel
