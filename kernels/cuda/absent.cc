// Stands in for cuda_backend.cu where the build has no CUDA.
#include "kernels/cuda/cuda_backend.h"

namespace runnel {

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions&) {
  return Status(Code::kFailedPrecondition,
                "this build has no CUDA: build it where nvcc is, or use backend cpu");
}

}  // namespace runnel
