// Threads that the CPU backends of one process share.
#pragma once

#include "kernels/cpu/places.h"
#include "kernels/cpu/thread_pool.h"

namespace runnel {

struct CpuThreads {
  // Throws the exceptions of ThreadPool.
  explicit CpuThreads(int threads) : pool(threads), places(threads) {}

  cpu::ThreadPool pool;  // for the backend that holds all places
  cpu::Places places;    // one for every working thread
};

}  // namespace runnel
