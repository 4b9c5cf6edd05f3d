// Marks code for the host and for devices.
//
// RUNNEL_DEVICE is put before every function that kernels call. nvcc then compiles the function for
// the device as well as for the host. A function without it is only for the host, and a kernel that
// calls one does not compile. With nvcc's --expt-relaxed-constexpr, constexpr functions would need
// no mark. But in such a function nvcc silently drops the code after a call of a host function.
#pragma once

#ifdef __CUDACC__
#define RUNNEL_DEVICE __host__ __device__
#else
#define RUNNEL_DEVICE
#endif

#define RUNNEL_INLINE __attribute__((always_inline)) inline

namespace runnel {

// std::bit_cast for devices, too: the standard's is only for the host.
template <typename To, typename From>
RUNNEL_DEVICE constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace runnel
