// Makes a model that is ready to step from a bundle of any family.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/model.h"

namespace runnel {

// The maximum number of sessions if none is set.
inline constexpr int kMostUnasked = 256;

// The number of slots for as many sessions as fit in half of the free memory, at least 1 and at
// most kMostUnasked sessions. A session has `each` slots, which take `session_bytes` together.
int slots_that_fit(int64_t free_bytes, int64_t session_bytes, int each);

// Packs the bundle's weights for `backend`, which must outlive the model, and allocates
// `limits.slots` states and all activations. Nothing is allocated later. If `limits.slots` is 0,
// slots_that_fit() decides, with the memory that is free after the weights are packed.
// - `precision`: of the weights of the layers.
// - `cache`: the type in which attention keeps keys and values, kF32 or kBF16. The default is bf16,
//   or fp32 if `precision` is fp32.
// - INVALID_ARGUMENT if prompts are read in chunks and limits.values has no room for a chunk after
//   limits.rows. Also if an element of a tensor is a NaN or an infinity; the message names the file
//   and the tensor.
// - FAILED_PRECONDITION if the backend does not support this family or these sizes.
// - RESOURCE_EXHAUSTED if there is not enough memory; the message says how much was needed.
Result<std::unique_ptr<Model>> make_model(const Bundle& bundle, Backend& backend,
                                          const ModelLimits& limits,
                                          Precision precision = Precision::kFp32,
                                          std::optional<DType> cache = {});

}  // namespace runnel
