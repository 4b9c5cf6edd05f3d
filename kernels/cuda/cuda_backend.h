// The backend for an NVIDIA GPU.
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/layer_costs.h"

namespace runnel {

// Options for work that the GPU can do in several ways. Ways with different bits have different
// numerics ids.
struct CudaOptions {
  // Computes matrix products with NVIDIA's cuBLASLt, which is opened at run time, instead of our
  // own kernels. Its order of sums, and so the bits, may depend on the batch. Adds "+cublas" to the
  // id.
  bool library = false;
  // Keeps a state and a log of the last few inputs, which the state does not include yet, instead
  // of the state alone. The values are the same; fewer bytes are moved, and more memory is used.
  // Adds "+replay8".
  bool replay = false;
  // Computes prompts in chunks of 64 values on tensor cores, instead of position by position. The
  // sums differ by at most 1e-4. Adds "+chunks64".
  bool chunks = false;
  // Runs steps with one kernel for the whole network if it fits, instead of a kernel for each
  // operation. The bits and the id are the same.
  // - `cluster`: the number of the GPU's blocks that share a sequence.
  // - `together`: the number of groups of such blocks that receive weights together.
  // Both are powers of two with a product of at most 16. 0: the best number for the batch.
  bool whole = true;
  int cluster = 0;
  int together = 0;
  // The costs that decide the number of blocks for a batch, unless `cluster` and `together` do. The
  // bits are the same with any costs.
  LayerCosts costs = {};
};

// Makes a backend for the first GPU that the process may use. FAILED_PRECONDITION, with one
// sentence, if there is none: this build has no CUDA, the machine has no driver or device, or the
// device is too old. INTERNAL if there is a GPU that does not work.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options = {});

}  // namespace runnel
