// A function that makes the CUDA backend with its kernels on the host (host_device.h). Its
// templates are compiled once for all test programs.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace runnel::cuda {

// A fake cuBLASLt (fake_cublaslt.cc); the loader finds it by this name.
inline constexpr const char* kFakeLibrary = "libfake_cublaslt.so";

// The order in which a block runs the threads of a phase.
enum class ThreadOrder : uint8_t { kForward, kBackward, kShuffled };

// `options.library`: products by the fake cuBLASLt, which must be installed.
// `late`: work runs as late as possible, when a caller asks whether it is done.
std::unique_ptr<Backend> make_host_backend(const CudaOptions& options = {},
                                           ThreadOrder order = ThreadOrder::kForward,
                                           bool late = false);

}  // namespace runnel::cuda
