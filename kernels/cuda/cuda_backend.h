// The operations on an NVIDIA GPU.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/layer_costs.h"

namespace runnel {

// How the GPU does what it can do in two ways. Each of them is a numerics id of its own.
struct CudaOptions {
  // Matrix products by NVIDIA's cuBLASLt, opened at run time, instead of our own kernels: its order
  // of sums, and so the bits, may depend on the batch. Adds "+cublas" to the id.
  bool library = false;
  // A state and the last few inputs that are not yet in it, instead of the state alone: the same
  // values, fewer bytes moved, more kept. Adds "+replay8".
  bool replay = false;
  // Prompts in chunks of 64 on tensor cores, instead of position by position: other sums, within
  // 1e-4 of the others. Adds "+chunks64".
  bool chunks = false;
  // Steps by one kernel for the whole network where it fits, instead of a kernel for each
  // operation: the same bits, and so the same id. `cluster`: blocks of the GPU that share a
  // sequence; `together`: groups of them that get weights together. Powers of two, up to 16 of both
  // multiplied; 0: as serves the batch best.
  bool whole = true;
  int cluster = 0;
  int together = 0;
  // Decides how many blocks a batch takes where `cluster` and `together` do not. The bits are the
  // same with any costs.
  LayerCosts costs = {};
};

// The first GPU that the process may use. FAILED_PRECONDITION, in one sentence, when there is none:
// this build has no CUDA, or the machine no driver or device, or one that is too old. INTERNAL when
// there is one that does not work.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options = {});

}  // namespace runnel
