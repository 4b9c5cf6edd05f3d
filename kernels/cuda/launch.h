// How the kernels here are written, so that the very same code runs on a device and, in tests, on
// the host.
//
// A kernel is a struct with
//   Args                      plain data, given by value
//   kThreads                  threads of a block, a multiple of 32
//   kResident                 blocks that a multiprocessor must have registers for: the compiler's
//                             budget, which it must keep to without spilling
//   run(block, args)          what one block does, a template over the block
// and `block` offers
//   index()                   which block of the launch this is
//   shared<T>()               the block's shared memory
//   Each<T>                   a T of every thread: a register on a device. each[t] is thread t's
//   each(body)                body(t) for every thread t
//   phase(body)               the same, and then what it wrote to memory is seen by all threads
//   sum(Each<T>)              the sum over all threads, always as the same tree; given to all. Like
//                             a phase it shows all threads what was written before
//   largest(Each<uint64_t>)   likewise
//   add(T* shared, T)         an atomic addition of integers, inside a phase
//   pack(low, high)           two floats as a pair of bf16, rounded to nearest even
//   mma(c, a, b)              on every warp, c += a b on tensor cores (fragments.h)
//   require(holds, what)      stops everything loudly unless `holds`
// All but each, phase and what stands in their bodies is done by the block as one: loops around
// phases and early returns depend on nothing that differs between threads. So no thread ever misses
// a barrier, and the host runs a phase as a loop over threads, in any order.
#pragma once

#include <cstdint>

namespace runnel::cuda {

struct Launch {
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
};

inline constexpr int kWarp = 32;

}  // namespace runnel::cuda
