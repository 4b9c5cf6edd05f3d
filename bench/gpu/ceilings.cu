// Measures the limits of a GPU, and prints them as one JSON object: the bandwidth of copies and of
// repeated reads by size; the time of a launch in a graph and of a barrier; from compute capability
// 9.0 on, the speed of the whole-model kernel's instructions. docs/benchmarks/gpu.md has figures.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/cluster_ceilings.h"

namespace runnel {
namespace {

using ceilings::kThreads;
constexpr size_t kStepShared = 144 << 10;  // bytes; so a multiprocessor has room for one block
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

// Reads everything `rounds` times. Because of the sum, the compiler cannot omit the reads.
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

// The members of a JSON object. A figure that could not be measured is null.
using Figures = std::vector<std::pair<std::string, std::optional<double>>>;

void print(const std::optional<double>& figure) {
  figure ? std::printf("%.4g", *figure) : std::printf("null");
}

void print(const char* name, const Figures& figures) {
  std::printf(", \"%s\": {", name);
  const char* before = "";
  for (const auto& [key, figure] : figures) {
    std::printf("%s\"%s\": ", before, key.c_str());
    print(figure);
    before = ", ";
  }
  std::printf("}");
}

void print(const char* name, const std::optional<double>& figure) {
  std::printf(", \"%s\": ", name);
  print(figure);
}

struct Shape {
  int blocks, clusters;  // blocks of a cluster, clusters of the grid
};

// Times the instructions of the whole-model kernel. One block has most of a multiprocessor's
// shared memory, as in that kernel. A failure leaves the figures before it as they are.
class ClusterCeilings {
 public:
  ClusterCeilings(const cudaDeviceProp& device, cudaStream_t stream)
      : stream_(stream),
        shared_(std::min<size_t>(kStepShared, device.sharedMemPerBlockOptin - 1024)) {
    works(cudaEventCreate(&begin_));
    works(cudaEventCreate(&end_));
    works(cudaMalloc(&gave_up_, sizeof(int)));
    works(cudaMalloc(&weights_, kWeightBytes));
    works(cudaMalloc(&states_, kStateBytes));
    if (!failed_) works(cudaMemset(weights_, 0, kWeightBytes));
    if (!failed_) works(cudaMemset(states_, 0, kStateBytes));
  }

  // Returns false if something failed. A device without clusters of some size is no failure.
  bool measure() {
    clock();
    hops();
    meetings();
    bulk_latency();
    bulk();
    multicast();
    states();
    return !failed_;
  }

 private:
  static constexpr int64_t kWeightBytes = int64_t{ceilings::kWeightSlots} * ceilings::kSlotBytes;
  static constexpr int64_t kRingBytes = int64_t{ceilings::kTurns} * ceilings::kArea;  // of a block
  static constexpr int64_t kStateBytes = int64_t{1} << 30;

  void clock() {
    constexpr int64_t kCycles = 20'000'000;
    const auto taken = milliseconds(ceilings::spin, {1, 1}, kCycles);
    print("clock_mhz", per(taken, kCycles / 1e3));
  }

  void hops() {
    Figures found;
    for (const int blocks : {2, 16}) {
      const Shape shape{blocks, std::min(room(ceilings::hops, blocks), 1)};
      found.emplace_back(std::to_string(blocks),
                         microseconds(milliseconds(ceilings::hops, shape, kRounds), 2 * kRounds));
    }
    print("st_async_hop_us", found);
  }

  void meetings() {
    constexpr int kMeetings = 300;
    Figures found;
    for (const int blocks : {2, 8, 16}) {
      const Shape shape{blocks, std::min(room(ceilings::meetings, blocks), 1)};
      for (const int bytes : {512, 2048, 16384}) {
        const auto taken = milliseconds(ceilings::meetings, shape, kMeetings, bytes);
        found.emplace_back(std::to_string(blocks) + "x" + std::to_string(bytes),
                           microseconds(taken, kMeetings));
      }
    }
    print("meeting_us", found);
  }

  void bulk_latency() {
    const auto taken = milliseconds(ceilings::bulk_latency, {1, 1}, weights_, kRounds);
    print("bulk_latency_us", microseconds(taken, kRounds));
  }

  // Gigabytes per second that arrive in shared memory.
  std::optional<double> ring(const Shape& shape, bool apart) {
    const auto taken = milliseconds(ceilings::bulk_ring, shape, weights_, apart);
    return per(taken, static_cast<double>(kRingBytes) * shape.blocks * shape.clusters / 1e6);
  }

  void bulk() {
    const Shape all{1, room(ceilings::bulk_ring, 1)};
    print("bulk_gb_s_block", ring({1, 1}, false));
    print("bulk_gb_s_all", ring(all, true));
    print("bulk_gb_s_all_in_step", ring(all, false));
  }

  // Measures one cluster alone, and then as many as the device runs at the same time. Each cluster
  // begins at another place of the weights.
  void multicast() {
    Figures delivered;
    Figures read;
    for (const int blocks : {2, 4, 8}) {
      const int most = room(ceilings::bulk_ring, blocks);
      for (const bool all : {false, true}) {
        const auto rate = ring({blocks, all ? most : std::min(most, 1)}, true);
        const std::string name = std::to_string(blocks) + (all ? "_all" : "_one");
        delivered.emplace_back(name, rate);
        read.emplace_back(name, rate ? std::optional(*rate / blocks) : std::nullopt);
      }
    }
    print("multicast_gb_s_delivered", delivered);
    print("multicast_gb_s_read", read);
  }

  void states() {
    const Shape all{1, room(ceilings::update_states, 1)};
    for (const auto& [name, shape] : {std::pair<const char*, Shape>{"state_gb_s_block", {1, 1}},
                                      std::pair<const char*, Shape>{"state_gb_s_all", all}}) {
      const auto taken =
          milliseconds(ceilings::update_states, shape, states_, kStateBytes / int64_t{16});
      print(name, per(taken, 2.0 * kStateBytes / 1e6));
    }
  }

  bool works(cudaError_t error) {
    if (error == cudaSuccess) return true;
    std::fprintf(stderr, "ceilings: %s\n", cudaGetErrorString(error));
    (void)cudaGetLastError();
    failed_ = true;
    return false;
  }

  static std::optional<double> per(std::optional<double> taken, double amount) {
    return taken ? std::optional(amount / *taken) : std::nullopt;
  }
  static std::optional<double> microseconds(std::optional<double> taken, int rounds) {
    return taken ? std::optional(*taken * 1000 / rounds) : std::nullopt;
  }

  // The attribute must outlive the launch.
  cudaLaunchConfig_t config(const Shape& shape, cudaLaunchAttribute& attribute) const {
    attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(shape.blocks);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(shape.blocks * shape.clusters));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared_;
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return config;
  }

  template <typename Kernel>
  bool allow(Kernel kernel) {
    return works(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) &&
           works(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared_)));
  }

  // The number of clusters of this size that are active at once.
  template <typename Kernel>
  int room(Kernel kernel, int blocks) {
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t launch = config({blocks, 1}, attribute);
    int active = 0;
    if (!allow(kernel)) return 0;
    if (cudaOccupancyMaxActiveClusters(&active, kernel, &launch) != cudaSuccess) {
      (void)cudaGetLastError();  // this device has no clusters of that size
      return 0;
    }
    return active;
  }

  // How long the second of two runs of the kernel takes. None if the device cannot run a cluster of
  // this size, or if the kernel fails.
  template <typename Kernel, typename... Args>
  std::optional<double> milliseconds(Kernel kernel, const Shape& shape, Args... args) {
    if (shape.clusters == 0 || !allow(kernel)) return {};
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t launch = config(shape, attribute);
    float taken = 0.0F;
    int gave_up = 0;
    bool good = works(cudaMemsetAsync(gave_up_, 0, sizeof(int), stream_));
    for (int run = 0; run < 2 && good; ++run) {
      good = works(cudaEventRecord(begin_, stream_)) &&
             works(cudaLaunchKernelEx(&launch, kernel, args..., gave_up_)) &&
             works(cudaEventRecord(end_, stream_)) && works(cudaEventSynchronize(end_)) &&
             works(cudaEventElapsedTime(&taken, begin_, end_));
    }
    good = good && works(cudaMemcpy(&gave_up, gave_up_, sizeof(int), cudaMemcpyDeviceToHost));
    if (good && gave_up == 0) return taken;
    if (good) std::fprintf(stderr, "ceilings: a wait in a kernel gave up\n");
    failed_ = true;
    return {};
  }

  cudaStream_t stream_;
  size_t shared_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  int* gave_up_ = nullptr;
  char* weights_ = nullptr;
  float4* states_ = nullptr;
  bool failed_ = false;
};

class Ceilings {
 public:
  Ceilings() {
    must(cudaGetDeviceProperties(&device_, 0), "looking at the device");
    must(cudaStreamCreate(&stream_), "making a stream");
    must(cudaEventCreate(&begin_), "making an event");
    must(cudaEventCreate(&end_), "making an event");
  }

  // Returns false if a measurement of ClusterCeilings failed. Any other failure ends the program.
  bool measure() {
    bool good = true;
    std::printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %d", device_.name,
                device_.multiProcessorCount, device_.l2CacheSize);
    bandwidths();
    std::printf(", \"graph_launch_us\": %.3f", graph_launch());
    std::printf(", \"grid_barrier_us\": %.3f", grid_barrier());
    if (device_.major >= 9) {
      for (const int size : {8, 16}) clusters(size);
      good = ClusterCeilings(device_, stream_).measure();
    }
    std::printf("}\n");
    return good;
  }

 private:
  // How long the second of two runs of `body` takes, in milliseconds.
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

  // Microseconds from one empty kernel of a chain to the next.
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

  // One block on each multiprocessor.
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
    // Counts clusters as for the whole-model kernel: a block has most of a multiprocessor's shared
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
  return runnel::Ceilings().measure() ? 0 : 1;
}
