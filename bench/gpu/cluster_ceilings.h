// Kernels that time single instructions of the whole-model kernel: stores to another block of the
// cluster, bulk copies to shared memory, and loads and stores of states. A kernel sets *gave_up if
// one of its waits times out.
#pragma once

#include <cstdint>

#include "bench/gpu/cluster_asm.h"

namespace runnel::ceilings {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSlots = 32;  // slots of the ring of bulk copies
constexpr int kSlotBytes = 2048;
constexpr int kArea = kSlots * kSlotBytes;         // bytes of dynamic shared memory
constexpr int kWeightSlots = 6144;                 // a buffer of 12.6 MB
constexpr int kTurns = 4 * kWeightSlots / kSlots;  // turns of the ring: the buffer is read 4 times
constexpr int kStateLoads = 8;                     // loads that a thread has in flight

// A message of 16 bytes goes back and forth between the first and the last block of a cluster.
__global__ void __launch_bounds__(kThreads) hops(int rounds, [[maybe_unused]] int* gave_up) {
#ifdef RUNNEL_CLUSTER_ASM
  using namespace cluster;
  __shared__ uint4 message;
  __shared__ uint64_t barrier;
  const uint32_t here = address(&barrier);
  if (threadIdx.x == 0) initialize(here, 1);
  sync();
  const int peer = blocks() - 1 - rank();
  if (threadIdx.x == 0 && (rank() == 0 || peer == 0)) {
    const int64_t begin = clock64();
    const uint32_t to = in_block(peer, address(&message));
    const uint32_t there = in_block(peer, here);
    for (int round = 0; round < rounds; ++round) {
      expect(here, sizeof(message));
      if (rank() == 0) send(to, uint4{}, there);
      if (!await(here, round, begin)) {
        *gave_up = 1;
        break;
      }
      if (rank() != 0) send(to, uint4{}, there);
    }
  }
  sync();  // no block leaves while another may send to it
#endif
}

// All blocks of a cluster send each other `bytes` bytes and wait for all of them. As in the
// whole-model kernel, two barriers take turns. Nobody reads the bytes, so blocks may write to the
// same place.
__global__ void __launch_bounds__(kThreads)
    meetings(int rounds, int bytes, [[maybe_unused]] int* gave_up) {
#ifdef RUNNEL_CLUSTER_ASM
  using namespace cluster;
  extern __shared__ __align__(128) unsigned char area[];
  __shared__ uint64_t barriers[2];
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < 2) initialize(address(&barriers[thread]), blocks());
  sync();
  const int64_t begin = clock64();
  const int pieces = bytes / 16;  // a power of two, as is the number of blocks
  const uint32_t to = address(area) + rank() * bytes % kArea;
  bool in_time = true;
  for (int round = 0; round < rounds; ++round) {
    const uint32_t here = address(&barriers[round % 2]);
    for (int i = thread; i < (blocks() - 1) * pieces; i += kThreads) {
      const int peer = (rank() + 1 + i / pieces) % blocks();
      send(in_block(peer, to + i % pieces * 16), uint4{}, in_block(peer, here));
    }
    __syncthreads();
    if (thread == rank()) {
      expect(here, (blocks() - 1) * bytes);
    } else if (thread < blocks()) {
      arrive(in_block(thread, here));
    }
    in_time = in_time && await(here, round / 2, begin);
  }
  if (!in_time) *gave_up = 1;
  sync();
#endif
}

// Bulk copies of one slot each, one after the other.
__global__ void __launch_bounds__(kThreads)
    bulk_latency(const char* weights, int rounds, [[maybe_unused]] int* gave_up) {
#ifdef RUNNEL_CLUSTER_ASM
  using namespace cluster;
  extern __shared__ __align__(128) unsigned char area[];
  __shared__ uint64_t barrier;
  const uint32_t here = address(&barrier);
  if (threadIdx.x == 0) initialize(here, 1);
  sync();
  if (threadIdx.x == 0) {
    const int64_t begin = clock64();
    for (int round = 0; round < rounds; ++round) {
      const int64_t slot = round * 97 % kWeightSlots;
      expect(here, kSlotBytes);
      fetch(address(area), weights + slot * kSlotBytes, kSlotBytes, here);
      if (!await(here, round, begin)) {
        *gave_up = 1;
        break;
      }
    }
  }
  sync();
#endif
}

#ifdef RUNNEL_CLUSTER_ASM
// A ring of slots in each block of a cluster. Each block fills its share of the slots for all
// blocks, and refills a slot once every block has received it. Each warp handles four slots.
struct Ring {
  const char* weights;
  int first;      // slot of the weights that the ring begins with
  uint32_t area;  // address of the first slot in shared memory
  // The address of one barrier for each slot. It completes when the slot's bytes have arrived.
  uint32_t filled;
  // The same for the slots that this block fills. A barrier completes when all blocks have received
  // the slot's bytes.
  uint32_t emptied;
  int64_t begin;

  __device__ static int reader(int slot) { return slot * cluster::blocks() / kSlots; }

  __device__ void expect(int slot) const { cluster::expect(filled + slot * 8, kSlotBytes); }

  __device__ void fetch(int turn, int slot) const {
    const int64_t at = (first + turn * kSlots + slot) % kWeightSlots;
    const uint32_t to = area + slot * kSlotBytes;
    if (cluster::blocks() == 1) {
      cluster::fetch(to, weights + at * kSlotBytes, kSlotBytes, filled + slot * 8);
    } else {
      cluster::fetch_for((1U << cluster::blocks()) - 1, to, weights + at * kSlotBytes, kSlotBytes,
                         filled + slot * 8);
    }
  }

  // Waits for the bytes of a turn, then requests the next turn's bytes. False: it took too long.
  __device__ bool advance(int turn, int slot) const {
    if (!cluster::await(filled + slot * 8, turn, begin)) return false;
    if (turn + 1 == kTurns) return true;
    expect(slot);
    if (cluster::blocks() > 1) cluster::arrive(cluster::in_block(reader(slot), emptied + slot * 8));
    if (cluster::rank() != reader(slot)) return true;
    if (cluster::blocks() > 1 && !cluster::await(emptied + slot * 8, turn, begin)) return false;
    fetch(turn + 1, slot);
    return true;
  }
};
#endif

// Copies the weights through the Ring of each cluster. `apart`: the clusters begin at different
// places in the weights; otherwise all begin at the start.
__global__ void __launch_bounds__(kThreads)
    bulk_ring(const char* weights, bool apart, [[maybe_unused]] int* gave_up) {
#ifdef RUNNEL_CLUSTER_ASM
  extern __shared__ __align__(128) unsigned char area[];
  __shared__ uint64_t filled[kSlots], emptied[kSlots];
  const int blocks = cluster::blocks();
  const int mine = static_cast<int>(blockIdx.x) / blocks;  // the index of this cluster
  const int clusters = static_cast<int>(gridDim.x) / blocks;
  const Ring ring = {.weights = weights,
                     .first = apart ? mine * (kWeightSlots / clusters) : 0,
                     .area = cluster::address(area),
                     .filled = cluster::address(filled),
                     .emptied = cluster::address(emptied),
                     .begin = clock64()};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kSlots) {
    cluster::initialize(ring.filled + thread * 8, 1);
    cluster::initialize(ring.emptied + thread * 8, blocks);
    ring.expect(thread);
  }
  cluster::sync();
  if (thread % 32 == 0) {
    const int warp = thread / 32;
    for (int slot = warp; slot < kSlots; slot += kWarps) {
      if (cluster::rank() == Ring::reader(slot)) ring.fetch(0, slot);
    }
    bool in_time = true;
    for (int turn = 0; turn < kTurns && in_time; ++turn) {
      for (int slot = warp; slot < kSlots && in_time; slot += kWarps) {
        in_time = ring.advance(turn, slot);
      }
    }
    if (!in_time) *gave_up = 1;
  }
  cluster::sync();
#endif
}

// Reads and writes all of `states`. `count` must be a multiple of kThreads * kStateLoads.
__global__ void __launch_bounds__(kThreads)
    update_states(float4* states, int64_t count, int* /*gave_up*/) {
  constexpr int64_t kTile = int64_t{kThreads} * kStateLoads;
  for (int64_t tile = blockIdx.x * kTile; tile < count; tile += gridDim.x * kTile) {
    float4 state[kStateLoads];
#pragma unroll
    for (int i = 0; i < kStateLoads; ++i) {
      state[i] = __ldcg(states + tile + i * kThreads + threadIdx.x);
    }
    __syncthreads();  // keeps ptxas from moving loads after stores
#pragma unroll
    for (int i = 0; i < kStateLoads; ++i) {
      state[i].x += 1;
      __stcg(states + tile + i * kThreads + threadIdx.x, state[i]);
    }
  }
}

// Runs for the given number of cycles.
__global__ void spin(int64_t cycles, int* /*gave_up*/) {
  const int64_t begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

}  // namespace runnel::ceilings
