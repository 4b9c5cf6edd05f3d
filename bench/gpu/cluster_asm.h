// Instructions of compute capability 9.0 that have no name in CUDA C++: mbarriers, stores to
// another block of the cluster, and bulk copies to shared memory. Every wait has a limit.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define RUNNEL_CLUSTER_ASM 1

#include <cstdint>

namespace runnel::cluster {

constexpr int64_t kPatience = 200'000'000;  // a kernel's waits give up after this many cycles

__device__ inline int rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

__device__ inline int blocks() {
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return static_cast<int>(blocks);
}

// The address of `at` within the shared memory of this block.
__device__ inline uint32_t address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// The address of the same place in another block of the cluster.
__device__ inline uint32_t in_block(int rank, uint32_t here) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  return there;
}

// Initializes an mbarrier that `count` arrivals complete. The cluster sees it after sync().
__device__ inline void initialize(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Waits for all threads of the cluster.
__device__ inline void sync() {
  __syncthreads();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Arrives at a barrier of any block of the cluster.
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at a barrier of this block. Its phase then also waits for `bytes` bytes.
__device__ inline void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Whether a barrier of this block completes the phase within a short time.
__device__ inline bool completes(uint32_t barrier, int phase) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(phase & 1)
      : "memory");
  return done != 0;
}

// Waits for a phase. Returns false when clock64() is more than kPatience after `begin`.
__device__ inline bool await(uint32_t barrier, int phase, int64_t begin) {
  while (!completes(barrier, phase)) {
    if (clock64() - begin > kPatience) return false;
  }
  return true;
}

// Stores 16 bytes in any block of the cluster. `barrier` must be in the same block.
__device__ inline void send(uint32_t there, uint4 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(there),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
      : "memory");
}

// Copies to this block.
__device__ inline void fetch(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

// Copies to the same place in each block of the cluster whose bit in `ranks` is set. Works only in
// code for one architecture. In code that also runs on later ones no bytes arrive, so the wait
// gives up and the result is null.
__device__ inline void fetch_for([[maybe_unused]] unsigned ranks, [[maybe_unused]] uint32_t to,
                                 [[maybe_unused]] const void* from, [[maybe_unused]] int bytes,
                                 [[maybe_unused]] uint32_t barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || \
    defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier),
      "h"(static_cast<uint16_t>(ranks))
      : "memory");
#endif
}

}  // namespace runnel::cluster
#endif
