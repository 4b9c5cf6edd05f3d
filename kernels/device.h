// Code for the host and for devices.
//
// RUNNEL_DEVICE stands before every function that kernels call: nvcc then compiles it for the
// device as well as for the host. A function without it is the host's alone, and a kernel that
// calls one does not compile. nvcc's --expt-relaxed-constexpr would take any constexpr function
// without a mark, but what stands behind a call of the host's in such a function it drops in
// silence.
#pragma once

#ifdef __CUDACC__
#define RUNNEL_DEVICE __host__ __device__
#else
#define RUNNEL_DEVICE
#endif

#define RUNNEL_INLINE __attribute__((always_inline)) inline

namespace runnel {

// std::bit_cast, which is the host's alone.
template <typename To, typename From>
RUNNEL_DEVICE constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace runnel
