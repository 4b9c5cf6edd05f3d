// The CUDA backend whose kernels run on the host (host_device.h), behind a function: its templates
// are compiled once for all test programs.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace runnel::cuda {

// Stands in for cuBLASLt (fake_cublaslt.cc); the loader finds it by this name.
inline constexpr const char* kFakeLibrary = "libfake_cublaslt.so";

// The order in which a block runs the threads of a phase.
enum class ThreadOrder : uint8_t { kForward, kBackward, kShuffled };

// `options.library`: products by the library that stands in for cuBLASLt, which must be there.
// `late`: work runs when somebody asks whether it is done, as late as it may.
std::unique_ptr<Backend> make_host_backend(const CudaOptions& options = {},
                                           ThreadOrder order = ThreadOrder::kForward,
                                           bool late = false);

}  // namespace runnel::cuda
