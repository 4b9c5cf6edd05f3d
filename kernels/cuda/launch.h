// How the kernels here are written, so that the very same code runs on a device and, in tests, on
// the host.
//
// A kernel is a struct with
//   Args                      plain data, given by value
//   kThreads                  threads of a block, a multiple of 32
//   kResident                 blocks that a multiprocessor must have registers for: the compiler's
//                             budget, which it must keep to without spilling
//   run(block, args)          what one block does, a template over the block
//   ahead(block, args)        may be there: what a block does before it waits for the kernels in
//                             front of it. It calls block.prefetch(), and reads and writes nothing
//   kClusters                 there and true where it needs what is said of clusters below, which
//                             a device has from compute capability 9.0 on
// and `block` offers
//   index()                   which block of the launch this is
//   shared<T>()               the block's shared memory
//   Each<T>                   a T of every thread: a register on a device. each[t] is thread t's
//   each(body)                body(t) for every thread t; what it wrote is then seen by its warp
//   phase(body)               the same, and then what it wrote to memory is seen by all threads
//   sum(Each<T>)              the sum over all threads, always as the same tree; given to all. Like
//                             a phase it shows all threads what was written before
//   largest(Each<uint64_t>)   likewise
//   add(uint64_t* shared, n)  an atomic addition of n < 2^54, inside a phase
//   pack(low, high)           two floats as a pair of bf16, rounded to nearest even
//   mma(c, a, b)              on every warp, c(t) += a(t) b(t) on tensor cores (fragments.h)
//   mma<n>(c, a, b)           likewise c(t, i) += a(t, i) b(t, i), for i from 0 to n - 1
//   fold(x, mask)             x(t) += x(t ^ mask) for every thread t; both are of one warp
//   prefetch(from, bytes)     in ahead(): has memory that no kernel writes brought to the device's
//                             cache, 16 bytes at a time
//   require(holds, what)      stops everything loudly unless `holds`
// Blocks may be launched as clusters of `Launch::cluster`, neighbours by index(), which run at the
// same time and reach into each other's shared memory:
//   rank(), ranks()           which block of its cluster this is, and of how many
//   gather(together)          once, before all that follows: all blocks of the cluster are there.
//                             From now on `together` neighbours of them meet each other, and no
//                             others
//   send(rank, T* at, T)      inside a phase or the work of a meeting: 4, 8 or 16 bytes to where
//                             `at`, of this block's shared memory, lies in that block's, which may
//                             be this one, of those that meet. Seen there after that block's next
//                             meeting, or this one, and not to be sent to a block that goes
//                             through no further one
//   meet(bytes, work)         ends a phase, and the blocks wait for each other and for the `bytes`
//                             that are sent to this one, neither more nor fewer. Before it waits,
//                             the block does work(): some each(), which read nothing that other
//                             warps or blocks write in it. Waits for no store to memory
// and, for copies from memory that come by themselves, with Barriers in shared memory, whose phases
// count from 0, inside a phase or the work of a meeting
//   prepare(barrier, count)   before gather(), once: a phase of it ends after `count` arrivals, and
//                             all bytes that are expected
//   arrive(rank, barrier)     arrives at the barrier that lies there in that block
//   expect(barrier, bytes)    arrives, and the phase has to wait for so many bytes more
//   fetch(to, from, bytes, barrier, ranks)   has memory copied to `to` in shared memory, and the
//                             same to the same place in all blocks of the bit mask `ranks`, where
//                             each has expected it or will; mask 0: only here. 16 bytes at a time
//   bring(to, from)           has 16 bytes copied to this block's shared memory
//   brought(barrier)          arrives as soon as all is there that the thread has set out to bring
//   await(barrier, phase)     the thread waits for the end of that phase, which is this or the last
// The destination of a copy must not be read or written until its barrier's phase is over. All
// reads of its old contents must be over before the copy starts.
//
// All but each, phase and what stands in their bodies is done by the block as one: loops around
// phases and early returns depend on nothing that differs between threads, and those around meet()
// on nothing that differs between the blocks of a cluster. So no thread ever misses a barrier, and
// the host runs a phase as a loop over threads, in any order.
//
// A struct with Args and enqueue(args, stream) instead is another library's work: a device hands it
// its stream, and it stands in scripts and graphs as kernels do.
#pragma once

#include <cstdint>

// To be put before a loop whose steps index registers. Without unrolling, the array would be in
// memory.
#ifdef __CUDA_ARCH__
#define RUNNEL_UNROLL _Pragma("unroll")
#else
#define RUNNEL_UNROLL
#endif

// To be put before a loop that must not be unrolled, to keep the code short.
#ifdef __CUDA_ARCH__
#define RUNNEL_ROLL _Pragma("unroll 1")
#else
#define RUNNEL_ROLL
#endif

// To be put before a loop of which two iterations are to be merged into one.
#ifdef __CUDA_ARCH__
#define RUNNEL_UNROLL_PAIRS _Pragma("unroll 2")
#else
#define RUNNEL_UNROLL_PAIRS
#endif

namespace runnel::cuda {

struct Launch {
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  int64_t cluster = 1;  // the blocks of a cluster
};

inline constexpr int kWarp = 32;

struct Barrier {
  uint64_t bits;  // in the device's format
};

}  // namespace runnel::cuda
