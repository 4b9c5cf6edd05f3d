// The device of DeviceBackend, with the CUDA runtime: memory, one stream and launches. Also the
// `block` of launch.h for GPU code.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_backend.h"
#include "kernels/cuda/script.h"

namespace runnel {
namespace cuda {
namespace {

extern __shared__ __align__(16) double shared_memory[];

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define RUNNEL_HAS_CLUSTERS
constexpr bool kHasClusters = true;
// Multicast needs code that is compiled for exactly one architecture or family. In other code,
// fetch_for() makes one copy for each block.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || \
    defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define RUNNEL_HAS_MULTICAST
#endif
#else
constexpr bool kHasClusters = false;
#endif

__device__ void multiply(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(  // volatile, so that it never moves to code that only a part of the warp runs
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]),
        "r"(b.pair[1]));
}

// ---- a block ------------------------------------------------------------------------------------

// launch.h describes the members. They run only on the device. The host's compiler parses them, but
// nothing on the host calls them.
template <int kBlockThreads>
class CudaBlock {
 public:
  static constexpr int kThreads = kBlockThreads;

  template <typename T>
  class Each {
   public:
    __host__ __device__ T& operator[](int) { return held_; }

   private:
    T held_{};
  };

  __host__ __device__ int64_t index() const { return int64_t{blockIdx.x} - first_; }
  __host__ __device__ void count_from(int first) { first_ = first; }

  template <typename T>
  __host__ __device__ T* shared() const {
#ifdef __CUDA_ARCH__
    return reinterpret_cast<T*>(shared_memory);
#else
    return nullptr;
#endif
  }

  template <typename Body>
  __host__ __device__ RUNNEL_INLINE void each([[maybe_unused]] const Body& body) {
#ifdef __CUDA_ARCH__
    body(thread());
    __syncwarp();  // code after each() may use instructions of the whole warp
#endif
  }

  template <typename Body>
  __host__ __device__ RUNNEL_INLINE void phase([[maybe_unused]] const Body& body) {
#ifdef __CUDA_ARCH__
    body(thread());
    __syncthreads();
#endif
  }

  __host__ __device__ void prefetch([[maybe_unused]] const void* from,
                                    [[maybe_unused]] uint32_t bytes) {
#ifdef RUNNEL_HAS_CLUSTERS
    if (thread() != 0) return;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
                 "r"(bytes)
                 : "memory");
#endif
  }

  template <typename T>
  __host__ __device__ T sum([[maybe_unused]] Each<T>& of) {
#ifdef __CUDA_ARCH__
    T mine = of[0];
    for (int mask = kWarp / 2; mask > 0; mask /= 2) mine += __shfl_xor_sync(~0U, mine, mask);
    return join(mine, [](T a, T b) { return a + b; });
#else
    return T{};
#endif
  }

  __host__ __device__ uint64_t largest([[maybe_unused]] Each<uint64_t>& of) {
#ifdef __CUDA_ARCH__
    uint64_t mine = of[0];
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const uint64_t other = __shfl_xor_sync(~0U, mine, mask);
      mine = other > mine ? other : mine;
    }
    return join(mine, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
#else
    return 0;
#endif
  }

  __host__ __device__ void add([[maybe_unused]] uint64_t* at, [[maybe_unused]] uint64_t more) {
#ifdef __CUDA_ARCH__
    // Shared memory has no instruction for 64-bit additions. The compiler makes a loop that takes
    // the threads of a warp one by one. So threads that add to the same place first add up their
    // numbers, and one of them adds the sum.
    constexpr int kHalf = 27;  // bits: the sum of 32 such numbers fits in 32 bits
    const unsigned together =
        __match_any_sync(__activemask(), static_cast<unsigned>(__cvta_generic_to_shared(at)));
    const uint64_t low =
        __reduce_add_sync(together, static_cast<unsigned>(more) & ((1U << kHalf) - 1));
    const uint64_t high = __reduce_add_sync(together, static_cast<unsigned>(more >> kHalf));
    if (thread() % kWarp != __ffs(static_cast<int>(together)) - 1) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(at),
              static_cast<unsigned long long>(low + (high << kHalf)));
#endif
  }

  __host__ __device__ uint32_t pack([[maybe_unused]] float low, [[maybe_unused]] float high) const {
#ifdef __CUDA_ARCH__
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return 0;
#endif
  }

  template <typename C, typename A, typename B>
  __host__ __device__ RUNNEL_INLINE void mma([[maybe_unused]] const C& c,
                                             [[maybe_unused]] const A& a,
                                             [[maybe_unused]] const B& b) {
#ifdef __CUDA_ARCH__
    multiply(c(thread()), a(thread()), b(thread()));
#endif
  }
  template <int kCount, typename C, typename A, typename B>
  __host__ __device__ RUNNEL_INLINE void mma([[maybe_unused]] const C& c,
                                             [[maybe_unused]] const A& a,
                                             [[maybe_unused]] const B& b) {
#ifdef __CUDA_ARCH__
    RUNNEL_UNROLL
    for (int i = 0; i < kCount; ++i) multiply(c(thread(), i), a(thread(), i), b(thread(), i));
#endif
  }

  template <typename X>
  __host__ __device__ RUNNEL_INLINE void fold([[maybe_unused]] const X& x,
                                              [[maybe_unused]] int mask) {
#ifdef __CUDA_ARCH__
    float& mine = x(thread());
    mine += __shfl_xor_sync(~0U, mine, mask);
#endif
  }
  template <typename X, typename Y>
  __host__ __device__ RUNNEL_INLINE void fold([[maybe_unused]] const X& x,
                                              [[maybe_unused]] const Y& y,
                                              [[maybe_unused]] int mask) {
#ifdef __CUDA_ARCH__
    const float other = __shfl_xor_sync(~0U, y(thread()), mask);
    x(thread()) += other;
#endif
  }
  template <typename X>
  __host__ __device__ RUNNEL_INLINE void fold_largest([[maybe_unused]] const X& x,
                                                      [[maybe_unused]] int mask) {
#ifdef __CUDA_ARCH__
    float& mine = x(thread());
    mine = fmaxf(mine, __shfl_xor_sync(~0U, mine, mask));
#endif
  }

  // The functions from here to require() are for kernels with kClusters, which have no code before
  // compute capability 9.0.
  __host__ __device__ int rank() const {
    unsigned rank = 0;
#ifdef RUNNEL_HAS_CLUSTERS
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return static_cast<int>(rank);
  }
  __host__ __device__ int ranks() const {
    unsigned ranks = 1;
#ifdef RUNNEL_HAS_CLUSTERS
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(ranks));
#endif
    return static_cast<int>(ranks);
  }

  // A meeting is one phase of an mbarrier in each block of a group. The phase ends when every block
  // of the group, and all bytes that are sent to this block, have arrived. The cluster's own
  // barrier would also wait for all writes to memory. Each block has two mbarriers, which take
  // turns, because one block may be one meeting ahead of another.
  __host__ __device__ void gather([[maybe_unused]] int together) {  // a power of two
#ifdef RUNNEL_HAS_CLUSTERS
    together_ = together;
    if (thread() < 2) initialize(meeting(thread()), together);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  template <typename T>
  __host__ __device__ RUNNEL_INLINE void send([[maybe_unused]] int rank, [[maybe_unused]] T* at,
                                              [[maybe_unused]] T value) {
#ifdef RUNNEL_HAS_CLUSTERS
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
    struct Words {
      uint32_t at[sizeof(T) / 4];
    };
    const auto words = __builtin_bit_cast(Words, value);
    const uint32_t there = in_block(rank, shared_address(at));
    const uint32_t met = in_block(rank, meeting(meetings_ % 2));
    if constexpr (sizeof(T) == 4) {
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
              there),
          "r"(words.at[0]), "r"(met)
          : "memory");
    } else if constexpr (sizeof(T) == 8) {
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, "
          "[%3];" ::"r"(there),
          "r"(words.at[0]), "r"(words.at[1]), "r"(met)
          : "memory");
    } else {
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, "
          "%4}, [%5];" ::"r"(there),
          "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3]), "r"(met)
          : "memory");
    }
#endif
  }

  template <typename Work>
  __host__ __device__ RUNNEL_INLINE void meet([[maybe_unused]] int bytes,
                                              [[maybe_unused]] const Work& work) {
#ifdef RUNNEL_HAS_CLUSTERS
    __syncthreads();  // all threads have read the data that other blocks may now overwrite
    const int peer = (rank() & -together_) + thread();
    const uint32_t here = meeting(meetings_ % 2);
    if (peer == rank()) {
      expect_at(here, bytes);
    } else if (thread() < together_) {
      arrive_at(in_block(peer, here));
    }
    __syncwarp();
    work();
    await_at(here, meetings_ / 2);
    ++meetings_;
#endif
  }

  __host__ __device__ void prepare([[maybe_unused]] Barrier* barrier, [[maybe_unused]] int count) {
#ifdef RUNNEL_HAS_CLUSTERS
    initialize(shared_address(barrier), count);
#endif
  }
  __host__ __device__ void arrive([[maybe_unused]] int rank, [[maybe_unused]] Barrier* barrier) {
#ifdef RUNNEL_HAS_CLUSTERS
    arrive_at(in_block(rank, shared_address(barrier)));
#endif
  }
  __host__ __device__ void expect([[maybe_unused]] Barrier* barrier, [[maybe_unused]] int bytes) {
#ifdef RUNNEL_HAS_CLUSTERS
    expect_at(shared_address(barrier), bytes);
#endif
  }
  __host__ __device__ void fetch([[maybe_unused]] void* to, [[maybe_unused]] const void* from,
                                 [[maybe_unused]] int bytes, [[maybe_unused]] Barrier* barrier,
                                 [[maybe_unused]] unsigned ranks) {
#ifdef RUNNEL_HAS_CLUSTERS
    const uint32_t here = shared_address(to);
    if (ranks == 0) [[likely]] {
      fetch_at(here, from, bytes, shared_address(barrier));
    } else {
      fetch_for(ranks, here, from, bytes, shared_address(barrier));
    }
#endif
  }
  template <typename T>
  __host__ __device__ void bring([[maybe_unused]] T* to, [[maybe_unused]] const T* from) {
#ifdef RUNNEL_HAS_CLUSTERS
    static_assert(sizeof(T) == 16);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
#endif
  }
  __host__ __device__ void brought([[maybe_unused]] Barrier* barrier) {
#ifdef RUNNEL_HAS_CLUSTERS
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
        : "memory");
#endif
  }
  __host__ __device__ void await([[maybe_unused]] Barrier* barrier, [[maybe_unused]] int phase) {
#ifdef RUNNEL_HAS_CLUSTERS
    await_at(shared_address(barrier), phase);
#endif
  }

  __host__ __device__ void require([[maybe_unused]] bool holds,
                                   [[maybe_unused]] const char* what) const {
#ifdef __CUDA_ARCH__
    if (!holds) __assert_fail(what, __FILE__, __LINE__, "a kernel");
#endif
  }

 private:
  // The index of this thread. The compiler knows the range, so it replaces divisions by shifts.
  __device__ static int thread() {
    const auto thread = static_cast<int>(threadIdx.x);
    __builtin_assume(thread >= 0 && thread < kThreads);
    return thread;
  }

#ifdef RUNNEL_HAS_CLUSTERS
  // The address of `at` within shared memory.
  __device__ static uint32_t shared_address(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  // The address of one of the block's two mbarriers for meetings.
  __device__ static uint32_t meeting(int which) {
    __shared__ uint64_t meetings[2];
    return shared_address(meetings + which);
  }
  // The address of the same place in another block of the cluster.
  __device__ static uint32_t in_block(int rank, uint32_t here) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    return there;
  }
  __device__ static void initialize(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
  }
  __device__ static void arrive_at(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
  }
  __device__ static void expect_at(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
  }
  __device__ static void fetch_at(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
        : "memory");
  }
#ifdef RUNNEL_HAS_MULTICAST
  // Copies to the same place in all blocks of the bit mask `ranks`.
  __device__ static void fetch_for(unsigned ranks, uint32_t to, const void* from, int bytes,
                                   uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier),
        "h"(static_cast<uint16_t>(ranks))
        : "memory");
  }
#else
  __device__ static void fetch_for(unsigned ranks, uint32_t to, const void* from, int bytes,
                                   uint32_t barrier) {
    for (int rank = 0; ranks >> rank != 0; ++rank) {
      if ((ranks >> rank & 1) == 0) continue;
      fetch_at(in_block(rank, to), from, bytes, in_block(rank, barrier));
    }
  }
#endif
#ifdef RUNNEL_WATCHDOG
  // Waits for a barrier. After about two seconds it prints the barrier and ends the kernel.
  __device__ static void await_at(uint32_t barrier, int phase) {
    constexpr int64_t kCycles = int64_t{1} << 32;
    const int64_t begin = clock64();
    for (;;) {
      uint32_t done;
      asm volatile(
          ".reg .pred met%=;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 met%=, [%1], %2;\n"
          "selp.u32 %0, 1, 0, met%=;"
          : "=r"(done)
          : "r"(barrier), "r"(phase & 1)
          : "memory");
      if (done != 0) return;
      if (clock64() - begin < kCycles) continue;
      printf("watchdog: block %u thread %u waits at %u (meetings at %u) for phase %d\n", blockIdx.x,
             threadIdx.x, barrier, meeting(0), phase);
      __trap();
    }
  }
#else
  __device__ static void await_at(uint32_t barrier, int phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again%=;\n"
        "}" ::"r"(barrier),
        "r"(phase & 1)
        : "memory");
  }
#endif
#endif

  // Joins the results of all warps, in the order of warps. All threads get the total.
  template <typename T, typename Join>
  __device__ static T join(T mine, const Join& join) {
    __shared__ T results[kThreads / kWarp];
    if (threadIdx.x % kWarp == 0) results[threadIdx.x / kWarp] = mine;
    __syncthreads();
    T total = results[0];
    for (int warp = 1; warp < kThreads / kWarp; ++warp) total = join(total, results[warp]);
    __syncthreads();
    return total;
  }

  int first_ = 0;     // the block from which index() counts
  int meetings_ = 0;  // how many meetings the block has had
  int together_ = 1;  // the number of blocks in a group
};

template <typename Kernel>
RUNNEL_DEVICE constexpr bool needs_clusters() {
  if constexpr (requires { Kernel::kClusters; }) return true;
  return false;
}

// A kernel without clusters may start before the previous kernel has ended (see
// CudaDevice::config_of). It first runs Kernel::ahead(), which needs no results, and then waits
// until the previous kernel has ended and its results can be read. Every kernel waits, so by then
// all earlier kernels have ended, too. Only a small kernel lets the next one start early. Otherwise
// the next kernel's blocks would crowd on the multiprocessors that become free first.
template <typename Kernel, typename Block>
__device__ void wait_for_inputs([[maybe_unused]] Block& block,
                                [[maybe_unused]] const typename Kernel::Args& args) {
#ifdef RUNNEL_HAS_CLUSTERS
  constexpr unsigned kSmall = 132;  // blocks: about as many as there are multiprocessors
  if (gridDim.x <= kSmall) cudaTriggerProgrammaticLaunchCompletion();
  if constexpr (requires { Kernel::ahead(block, args); }) Kernel::ahead(block, args);
  cudaGridDependencySynchronize();
#endif
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kResident)
    entry(const __grid_constant__ typename Kernel::Args args) {
  if constexpr (kHasClusters || !needs_clusters<Kernel>()) {
    CudaBlock<Kernel::kThreads> block;
    if constexpr (!needs_clusters<Kernel>()) wait_for_inputs<Kernel>(block, args);
    Kernel::run(block, args);
  }
}

// ---- the device ---------------------------------------------------------------------------------

Status failed(cudaError_t error, const char* doing) {
  return {Code::kInternal, std::string("the GPU failed: ") + cudaGetErrorString(error) + " (" +
                               cudaGetErrorName(error) + ") while " + doing};
}

void must(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) check(false, failed(error, doing).message().c_str());
}

// The same, but throws std::bad_alloc if there is no memory.
void take_memory(cudaError_t error, const char* doing) {
  if (error != cudaErrorMemoryAllocation) return must(error, doing);
  (void)cudaGetLastError();
  throw std::bad_alloc();
}

class CudaDevice {
 public:
  // Takes ownership of the stream.
  CudaDevice(const cudaDeviceProp& properties, cudaStream_t stream)
      : name_("cuda/sm" + std::to_string(properties.major * 10 + properties.minor)),
        shared_limit_(static_cast<int64_t>(properties.sharedMemPerBlockOptin) - kStaticShared),
        has_clusters_(properties.major >= 9 && is_built_for_9()),
        overlaps_(has_clusters_ && driver_version() >= kDriverThatCapturesOverlaps),
        stream_(stream) {
    for (cudaEvent_t& end : ends_) {
      must(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), "making an event");
    }
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() {
    cudaStreamSynchronize(stream_);
    for (const Graph& graph : graphs_) {
      if (graph.ready != nullptr) cudaGraphExecDestroy(graph.ready);
    }
    for (cudaEvent_t end : ends_) cudaEventDestroy(end);
    cudaStreamDestroy(stream_);
  }

  std::string name() const { return name_; }
  int64_t shared_limit() const { return shared_limit_; }
  int64_t free_memory() const {
    size_t free = 0;
    size_t all = 0;
    must(cudaMemGetInfo(&free, &all), "asking for free memory");
    return static_cast<int64_t>(free);
  }

  Buffer allocate(int64_t bytes, Memory memory);
  void copy(Span from, Span to);
  bool must_wait(Span from, Span to) { return is_ordinary(from.data) && !is_ordinary(to.data); }
  void zero(Span bytes) {
    check(!recording_, "a pass zeroes nothing");
    note(cudaMemsetAsync(bytes.data, 0, static_cast<size_t>(bytes.bytes), stream_), "zeroing");
  }
  Result<bool> done(int later);

  // Enqueues the launches that `enqueue` makes, as one graph if exactly the same launches were made
  // before.
  template <typename Enqueue>
  void batch(const Enqueue& enqueue) {
    script_.clear();
    recording_ = true;
    enqueue();
    recording_ = false;
    play_script();
    note(cudaEventRecord(ends_[clock_ % ends_.size()], stream_), "marking the end of a batch");
  }

  template <typename Kernel>
  void launch(const Launch& launch, const typename Kernel::Args& args) {
    if (recording_) {
      script_.add<Kernel>(launch, args);
    } else if constexpr (requires { Kernel::enqueue(args, stream_); }) {
      note(Kernel::enqueue(args, stream_));
    } else {
      launch_kernel<Kernel>(launch, args);
    }
  }

  // How many clusters of such a launch the device runs at the same time.
  template <typename Kernel>
  int64_t room(const Launch& launch) {
    if (launch.shared_bytes > shared_limit_) return 0;
    // A single block is not a cluster: st.async is an illegal instruction in it.
    if (needs_clusters<Kernel>() && (!has_clusters_ || launch.cluster == 1)) return 0;
    int clusters = 0;
    cudaError_t error = allow<Kernel>(launch);
    if (error == cudaSuccess) {
      cudaLaunchAttribute attribute;
      const cudaLaunchConfig_t config = config_of<Kernel>(launch, &attribute);
      error = cudaOccupancyMaxActiveClusters(&clusters, entry<Kernel>, &config);
    }
    if (error == cudaSuccess) return clusters;
    (void)cudaGetLastError();  // the device has no such clusters; clears the error
    return 0;
  }

 private:
  // The maximum bytes of a kernel's static shared memory, which a launch does not count.
  static constexpr int64_t kStaticShared = 1 << 10;
  static constexpr int64_t kSharedWithoutAsking = (48 << 10) - kStaticShared;
  static constexpr int64_t kClusterWithoutAsking = 8;
  static constexpr size_t kGraphs = 256;  // maximum number of scripts that are kept
  static constexpr int kDriverThatCapturesOverlaps = 12030;

  // A script and, from its second use on, a graph of its launches.
  struct Graph {
    std::string script;
    uint64_t used = 0;  // the value of clock_ at its last use
    cudaGraphExec_t ready = nullptr;
  };

  template <typename Kernel>
  void launch_kernel(const Launch& launch, const typename Kernel::Args& args) {
    check(launch.blocks <= INT32_MAX, "a launch has fewer than 2^31 blocks");
    note(allow<Kernel>(launch), "asking for shared memory");
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t config = config_of<Kernel>(launch, &attribute);
    note(cudaLaunchKernelEx(&config, entry<Kernel>, args), "launching a kernel");
  }

  void play_script();
  cudaGraphExec_t capture();

  // Whether `data` is in ordinary host memory, which the device cannot reach.
  bool is_ordinary(const void* data) {
    cudaPointerAttributes attributes{};
    note(cudaPointerGetAttributes(&attributes, data), "looking at a pointer");
    return attributes.type == cudaMemoryTypeUnregistered;
  }

  // Permits launches of the kernel with this much shared memory, and in clusters of this size. The
  // permission belongs to the process. It is always for the maximum, because another backend may
  // launch the same kernel on another thread.
  template <typename Kernel>
  cudaError_t allow(const Launch& launch) {
    cudaError_t error = cudaSuccess;
    if (launch.shared_bytes > kSharedWithoutAsking) {
      error = cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_limit_));
    }
    if (error == cudaSuccess && launch.cluster > kClusterWithoutAsking) {
      error =
          cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    return error;
  }
  // Whether the code that the device runs was compiled for compute capability 9.0 or later. Code
  // for an earlier one has no clusters, and does not wait for the kernel before it
  // (wait_for_inputs()).
  static bool is_built_for_9() {
    cudaFuncAttributes code{};
    must(cudaFuncGetAttributes(&code, entry<NormKernel>), "looking at a kernel");
    return code.ptxVersion >= 90;
  }
  static int driver_version() {
    int version = 0;
    must(cudaDriverGetVersion(&version), "asking for the driver's version");
    return version;
  }

  // The result refers to `attribute`. A kernel without clusters overlaps with the previous kernel
  // (programmatic dependent launch) if the device, the code and the driver support it.
  template <typename Kernel>
  cudaLaunchConfig_t config_of(const Launch& launch, cudaLaunchAttribute* attribute) const {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
    config.blockDim = dim3(Kernel::kThreads);
    config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
    config.stream = stream_;
    if (launch.cluster > 1) {
      attribute->id = cudaLaunchAttributeClusterDimension;
      attribute->val.clusterDim = {static_cast<unsigned>(launch.cluster), 1, 1};
    } else if (overlaps_ && !needs_clusters<Kernel>()) {
      attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute->val.programmaticStreamSerializationAllowed = 1;
    } else {
      return config;
    }
    config.attrs = attribute;
    config.numAttrs = 1;
    return config;
  }

  // Keeps the first failure, because later failures follow from it. done() reports it.
  void note(const Status& status) {
    if (status_.ok() && !status.ok()) status_ = status;
  }
  void note(cudaError_t error, const char* doing) {
    if (error != cudaSuccess) note(failed(error, doing));
  }

  std::string name_;
  int64_t shared_limit_;
  bool has_clusters_;
  bool overlaps_;
  const cudaStream_t stream_;
  Script<CudaDevice> script_;
  bool recording_ = false;
  std::vector<Graph> graphs_;
  uint64_t clock_ = 0;                 // the number of batches so far
  std::array<cudaEvent_t, 2> ends_{};  // the ends of the last two batches, by clock_ % 2
  Status status_;
};

Buffer CudaDevice::allocate(int64_t bytes, Memory memory) {
  // Waits only for this stream. Another model may be capturing a graph on its stream, and a wait
  // for the whole device would break the capture.
  void* data = nullptr;
  const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
  const bool on_host = memory == Memory::kHost;
  take_memory(on_host ? cudaHostAlloc(&data, size, cudaHostAllocDefault) : cudaMalloc(&data, size),
              "taking memory");
  if (on_host) {
    std::memset(data, 0, size);
    return {static_cast<std::byte*>(data), bytes,
            [](std::byte* held, int64_t) { cudaFreeHost(held); }};
  }
  Buffer buffer(static_cast<std::byte*>(data), bytes,
                [](std::byte* held, int64_t) { cudaFree(held); });
  take_memory(cudaMemsetAsync(data, 0, size, stream_), "zeroing new memory");
  take_memory(cudaStreamSynchronize(stream_), "zeroing new memory");
  return buffer;
}

// Launches a script kernel by kernel the first time, because many scripts, such as those of
// prompts, come only once. From the second time on it launches a graph.
void CudaDevice::play_script() {
  for (Graph& graph : graphs_) {
    if (graph.script != script_.bytes()) continue;
    graph.used = ++clock_;
    if (graph.ready == nullptr) graph.ready = capture();
    if (graph.ready != nullptr) note(cudaGraphLaunch(graph.ready, stream_), "launching a graph");
    return;
  }
  script_.replay(*this);
  if (graphs_.size() < kGraphs) {
    graphs_.push_back({std::string(script_.bytes()), ++clock_});
    return;
  }
  Graph& out = *std::ranges::min_element(graphs_, {}, &Graph::used);
  if (out.ready != nullptr) {
    note(cudaStreamSynchronize(stream_), "waiting for a graph");
    note(cudaGraphExecDestroy(out.ready), "freeing a graph");
  }
  out = {std::string(script_.bytes()), ++clock_};
}

cudaGraphExec_t CudaDevice::capture() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  note(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a graph");
  script_.replay(*this);
  note(cudaStreamEndCapture(stream_, &graph), "capturing a graph");
  if (graph == nullptr) return nullptr;
  note(cudaGraphInstantiate(&ready, graph, 0), "making a graph");
  note(cudaGraphDestroy(graph), "freeing a graph");
  return ready;
}

// A copy from or to ordinary host memory waits until it is done, because the caller may then change
// or read that memory.
void CudaDevice::copy(Span from, Span to) {
  check(!recording_, "a pass copies nothing");
  note(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(to.bytes), cudaMemcpyDefault,
                       stream_),
       "copying");
  if (is_ordinary(from.data) || is_ordinary(to.data)) {
    note(cudaStreamSynchronize(stream_), "copying");
  }
}

Result<bool> CudaDevice::done(int later) {
  check(later >= 0 && later < static_cast<int>(ends_.size()), "done: of the last two batches");
  const cudaError_t error = later == 0 ? cudaStreamQuery(stream_)
                                       : cudaEventQuery(ends_[(clock_ - later) % ends_.size()]);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();  // to the runtime it is an error, which the next launch must not see
    return false;
  }
  // The output of a failed kernel is printed only while the host waits for the stream.
  if (error != cudaSuccess) (void)cudaStreamSynchronize(stream_);
  note(error, "running the kernels");
  if (!status_.ok()) return status_;
  return true;
}

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return Status(Code::kFailedPrecondition,
                  std::string("this machine has no usable NVIDIA GPU or driver (") +
                      (error == cudaSuccess ? "no device" : cudaGetErrorString(error)) +
                      "): use backend cpu");
  }
  cudaDeviceProp properties{};
  if (cudaError_t failed = cudaGetDeviceProperties(&properties, 0); failed != cudaSuccess) {
    return cuda::failed(failed, "looking at the device");
  }
  if (properties.major < 8) {
    return Status(Code::kFailedPrecondition,
                  std::string("the GPU ") + properties.name + " has compute capability " +
                      std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                      "; 8.0 or later is needed: use backend cpu");
  }
  if (cudaError_t failed = cudaSetDevice(0); failed != cudaSuccess) {
    return cuda::failed(failed, "taking the device");
  }
  std::unique_ptr<cuda::ProductLibrary> library;
  if (options.library) {
    auto opened = cuda::ProductLibrary::open();
    if (!opened.ok()) return opened.status();
    library = std::move(*opened);
  }
  cudaStream_t stream = nullptr;
  if (cudaError_t failed = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      failed != cudaSuccess) {
    return cuda::failed(failed, "making a stream");
  }
  auto backend =
      std::make_unique<cuda::DeviceBackend<cuda::CudaDevice>>(options, properties, stream);
  if (library != nullptr) backend->use(std::move(library));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace runnel
