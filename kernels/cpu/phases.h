// A sequence of operations that several threads go through together, each taking what tasks nobody
// else has taken.
//
// A thread waits only for tasks that another one is at. One that comes late finds the phases before
// done and catches up within nanoseconds; one that never comes is not missed.
#pragma once

#include <atomic>
#include <cstdint>

namespace runnel::cpu {

class Phases {
 public:
  // Begins a sequence anew. Nobody is in run().
  void restart() { at_.store(0, std::memory_order_relaxed); }

  // Calls body(task) for tasks of [0, tasks) that no other thread has taken, and returns when all
  // of them are done and seen. Every thread calls it with phases 0, 1, 2, ... and with the same
  // number of tasks, at least 1, for each.
  template <typename F>
  void run(uint32_t phase, int tasks, const F& body) {
    int done = 0;
    for (int task = take(phase, tasks); task >= 0; task = take(phase, tasks)) {
      body(task);
      ++done;
    }
    if (done > 0) report(phase, tasks, done);
    await(phase);
  }

 private:
  // A task of the phase that is now this thread's; -1: none is left.
  int take(uint32_t phase, int tasks);
  // So many tasks are done. Whoever does the last one opens the next phase.
  void report(uint32_t phase, int tasks, int done);
  // Returns when the phase is over.
  void await(uint32_t phase);

  // The phase (upper 32 bits) and how many of its tasks are taken.
  alignas(64) std::atomic<uint64_t> at_{0};
  alignas(64) std::atomic<int> done_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace runnel::cpu
