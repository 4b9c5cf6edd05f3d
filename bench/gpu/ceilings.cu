// What a GPU can do at best, as one JSON object: the bandwidth of copies and of reads that stay in
// its cache, and what a launch in a graph and a barrier cost. docs/cuda.md compares with these.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace runnel {
namespace {

constexpr int kThreads = 256;
constexpr size_t kStepShared = 144 << 10;  // bytes of a block of the whole-model kernel
constexpr int kRounds = 1000;              // launches and barriers that are timed together

void must(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "ceilings: %s while %s\n", cudaGetErrorString(error), doing);
  std::exit(1);
}

__global__ void copy(const float4* from, float4* to, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

// Reads everything `rounds` times; the sum keeps the reads from being left out.
__global__ void read(const float4* from, int64_t count, int rounds, float* sums) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  float sum = 0.0F;
  for (int round = 0; round < rounds; ++round) {
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
      const float4 at = __ldcg(from + i);  // past the multiprocessor's own cache
      sum += at.x + at.y + at.z + at.w;
    }
  }
  if (sum == 12345.0F) sums[0] = sum;
}

__global__ void nothing() {}

__global__ void grid_barriers(int rounds) {
  const auto grid = cooperative_groups::this_grid();
  for (int round = 0; round < rounds; ++round) grid.sync();
}

__global__ void cluster_barriers(int rounds) {
#if __CUDA_ARCH__ >= 900
  for (int round = 0; round < rounds; ++round) {
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
  }
#endif
}

class Ceilings {
 public:
  Ceilings() {
    must(cudaGetDeviceProperties(&device_, 0), "looking at the device");
    must(cudaStreamCreate(&stream_), "making a stream");
    must(cudaEventCreate(&begin_), "making an event");
    must(cudaEventCreate(&end_), "making an event");
  }

  void measure() {
    std::printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %d", device_.name,
                device_.multiProcessorCount, device_.l2CacheSize);
    bandwidths();
    std::printf(", \"graph_launch_us\": %.3f", graph_launch());
    std::printf(", \"grid_barrier_us\": %.3f", grid_barrier());
    if (device_.major >= 9) {
      for (const int size : {8, 16}) clusters(size);
    }
    std::printf("}\n");
  }

 private:
  // Milliseconds of the second of two runs of `body`.
  template <typename Body>
  float timed(const Body& body) {
    float milliseconds = 0.0F;
    for (int run = 0; run < 2; ++run) {
      must(cudaEventRecord(begin_, stream_), "timing");
      body();
      must(cudaGetLastError(), "launching");
      must(cudaEventRecord(end_, stream_), "timing");
      must(cudaEventSynchronize(end_), "running");
      must(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing");
    }
    return milliseconds;
  }

  void bandwidths() {
    constexpr int64_t kBytes = int64_t{1} << 30;
    const int blocks = device_.multiProcessorCount * 8;
    float4* from = nullptr;
    float4* to = nullptr;
    must(cudaMalloc(&from, kBytes), "taking memory");
    must(cudaMalloc(&to, kBytes), "taking memory");
    must(cudaMemset(from, 0, kBytes), "zeroing");
    const float copied =
        timed([&] { copy<<<blocks, kThreads, 0, stream_>>>(from, to, kBytes / 16); });
    std::printf(", \"copy_gb_s\": %.1f, \"read_gb_s\": {", 2.0 * kBytes / copied / 1e6);
    bool more = false;
    for (const int64_t mib : {2, 8, 16, 24, 32, 48, 64, 96, 256, 1024}) {
      const int64_t bytes = mib << 20;
      const int rounds = static_cast<int>((int64_t{4} << 30) / bytes);
      const float taken = timed([&] {
        read<<<blocks, kThreads, 0, stream_>>>(from, bytes / 16, rounds,
                                               reinterpret_cast<float*>(to));
      });
      std::printf("%s\"%lld\": %.1f", more ? ", " : "", static_cast<long long>(mib),
                  static_cast<double>(bytes) * rounds / taken / 1e6);
      more = true;
    }
    std::printf("}");
    must(cudaFree(from), "freeing");
    must(cudaFree(to), "freeing");
  }

  // From one empty kernel to the next in a chain, microseconds.
  float graph_launch() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
    for (int i = 0; i < kRounds; ++i) nothing<<<1, 32, 0, stream_>>>();
    must(cudaStreamEndCapture(stream_, &graph), "capturing");
    must(cudaGraphInstantiate(&ready, graph, 0), "making a graph");
    const float taken = timed([&] { must(cudaGraphLaunch(ready, stream_), "launching a graph"); });
    must(cudaGraphExecDestroy(ready), "freeing a graph");
    must(cudaGraphDestroy(graph), "freeing a graph");
    return taken * 1000 / kRounds;
  }

  // One block to a multiprocessor.
  float grid_barrier() {
    int rounds = kRounds;
    void* args[] = {&rounds};
    const float taken = timed([&] {
      must(cudaLaunchCooperativeKernel(grid_barriers, device_.multiProcessorCount, kThreads, args,
                                       0, stream_),
           "launching together");
    });
    return taken * 1000 / kRounds;
  }

  void clusters(int size) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(size);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(size));
    config.blockDim = dim3(kThreads);
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    must(cudaFuncSetAttribute(cluster_barriers, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
         "allowing clusters");
    // Counted as a step's kernel needs them: one block has most of a multiprocessor's shared
    // memory.
    config.dynamicSmemBytes = std::min<size_t>(kStepShared, device_.sharedMemPerBlockOptin);
    must(cudaFuncSetAttribute(cluster_barriers, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(config.dynamicSmemBytes)),
         "allowing shared memory");
    int active = 0;
    if (cudaOccupancyMaxActiveClusters(&active, cluster_barriers, &config) != cudaSuccess) {
      (void)cudaGetLastError();  // this device has no clusters of that size
      active = 0;
    }
    std::printf(", \"clusters_of_%d\": %d", size, active);
    if (active == 0) return;
    const float taken = timed([&] {
      must(cudaLaunchKernelEx(&config, cluster_barriers, kRounds), "launching a cluster");
    });
    std::printf(", \"cluster_of_%d_barrier_us\": %.3f", size, taken * 1000 / kRounds);
  }

  cudaDeviceProp device_{};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace
}  // namespace runnel

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "ceilings: this machine has no usable NVIDIA GPU or driver\n");
    return 1;
  }
  runnel::Ceilings().measure();
  return 0;
}
