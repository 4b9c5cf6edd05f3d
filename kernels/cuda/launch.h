// The form in which the kernels here are written, so that the same code runs on a device and, in
// tests, on the host.
//
// A kernel is a struct with
//   Args                      plain data, passed by value. If it has bytes(), only this number of
//                             its bytes may differ from those of Args()
//   kThreads                  the threads of a block, a multiple of 32
//   kResident                 the number of blocks that must fit in a multiprocessor's registers.
//                             The compiler must keep within this budget without spilling
//   run(block, args)          the work of one block, a template over the block
//   ahead(block, args)        optional: the work of a block before it waits for the kernels before
//                             it. It calls block.prefetch(), and reads and writes nothing
//   kClusters                 optional: true if the kernel needs clusters (see below), which a
//                             device has from compute capability 9.0 on
// and `block` offers
//   index()                   the index of the block in the launch
//   count_from(first)         from now on, index() is the distance to the block with this index
//   shared<T>()               the block's shared memory
//   Each<T>                   a T for every thread: a register on a device. each[t] is thread t's
//   each(body)                calls body(t) for every thread t. Afterwards the thread's warp sees
//                             what body wrote
//   phase(body)               the same, and afterwards all threads see what body wrote to memory
//   sum(Each<T>)              the sum over all threads, always added as the same tree. All threads
//                             get it. As after a phase, they see what was written before
//   largest(Each<uint64_t>)   the largest over all threads, in the same way
//   add(uint64_t* shared, n)  an atomic addition of n < 2^54, inside a phase
//   pack(low, high)           two floats as a pair of bf16, rounded to nearest even
//   mma(c, a, b)              on every warp, c(t) += a(t) b(t) on tensor cores (fragments.h)
//   mma<n>(c, a, b)           the same with c(t, i) += a(t, i) b(t, i), for i from 0 to n - 1
//   fold(x, mask)             x(t) += x(t ^ mask) for every thread t; both are in one warp
//   fold(x, y, mask)          x(t) += y(t ^ mask) in the same way; x and y are different numbers
//   fold_largest(x, mask)     x(t) = max(x(t), x(t ^ mask)) in the same way; no x(t) is a NaN
//   prefetch(from, bytes)     in ahead(): prefetches memory into the device's cache, 16 bytes at a
//                             time. No kernel may write to this memory
//   require(holds, what)      stops everything with a message unless `holds`
// Blocks may be launched as clusters of `Launch::cluster` blocks with adjacent indices. They run at
// the same time, and have access to each other's shared memory:
//   rank(), ranks()           the index of the block in its cluster, and the number of blocks in it
//   gather(together)          to be called once, before all functions below. Waits until all blocks
//                             of the cluster run. From then on, every `together` adjacent blocks
//                             form a group, and only the blocks of a group meet each other
//   send(rank, T* at, T)      inside a phase or the work of a meeting: writes 4, 8 or 16 bytes into
//                             the shared memory of block `rank`, at the place that `at` has in this
//                             block's. The receiver must be of the same group, and may be this
//                             block. It sees the bytes after its next meeting, or after the current
//                             one. A block that has no further meeting must not be sent anything
//   meet(bytes, work)         ends a phase with a meeting: a barrier of the group, at which each
//                             block also waits for the `bytes` that are sent to it; the number must
//                             be exact. Before it waits, the block does work(): calls of each()
//                             that read nothing that other warps or blocks write in their work. The
//                             barrier does not wait for stores to memory
// These are for asynchronous copies from memory. They use Barriers in shared memory, whose phases
// count from 0, and are called inside a phase or the work of a meeting:
//   prepare(barrier, count)   to be called once, before gather(): a phase of the barrier ends after
//                             `count` arrivals, and after all expected bytes
//   arrive(rank, barrier)     arrives at the barrier that block `rank` has at the same place
//   expect(barrier, bytes)    arrives, and adds to the bytes that the phase waits for
//   fetch(to, from, bytes, barrier, ranks)   copies memory to `to` in shared memory, 16 bytes at a
//                             time, and to the same place in all blocks of the bit mask `ranks`.
//                             Each of them must expect it, before or after. Mask 0: only here
//   bring(to, from)           copies 16 bytes to this block's shared memory
//   brought(barrier)          arrives as soon as all copies that the thread has started with
//                             bring() are complete
//   await(barrier, phase)     waits until that phase has ended: the current one or the last one
// The destination of a copy must not be read or written until its barrier's phase is over. All
// reads of its old contents must be over before the copy starts.
//
// Everything outside of the bodies of each() and phase() is done by the whole block together. Loops
// around phases, and early returns, must not depend on anything that differs between threads. Loops
// and returns around meet() must not depend on anything that differs between the blocks of a
// cluster. So no thread can miss a barrier, and the host runs a phase as a loop over threads, in
// any order.
//
// A struct with Args and enqueue(args, stream) instead of run() is work of another library. The
// device passes it a stream, and it can be part of scripts and graphs as kernels can.
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

// To be put before a loop, to merge two iterations into one.
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
