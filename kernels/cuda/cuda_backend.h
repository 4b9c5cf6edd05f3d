// The operations on an NVIDIA GPU.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"

namespace runnel {

// The first GPU that the process may use. FAILED_PRECONDITION, in one sentence, when there is none:
// this build has no CUDA, or the machine no driver or device, or one that is too old. INTERNAL when
// there is one that does not work.
Result<std::unique_ptr<Backend>> make_cuda_backend();

}  // namespace runnel
