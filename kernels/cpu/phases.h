// A sequence of operations that several threads run together. Each operation is one phase, in which
// a thread takes tasks that no other thread has taken.
//
// A thread waits only for tasks that other threads have taken. A thread that is late finds the
// earlier phases done, and catches up within nanoseconds. The others never wait for a thread that
// never arrives.
#pragma once

#include <atomic>
#include <cstdint>

namespace runnel::cpu {

class Phases {
 public:
  // Begins a new sequence. No thread may be in run().
  void restart() { at_.store(0, std::memory_order_relaxed); }

  // Calls body(task) for tasks of [0, tasks) that no other thread has taken. Returns when all tasks
  // are done and their results are visible. Every thread must call it with phases 0, 1, 2 and
  // so on. Within a phase, all threads must pass the same `tasks`, which is at least 1.
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
  // Takes a task of the phase for this thread. -1: no task is left.
  int take(uint32_t phase, int tasks);
  // Reports `done` tasks as done. The thread that does the last one opens the next phase.
  void report(uint32_t phase, int tasks, int done);
  // Returns when the phase is over.
  void await(uint32_t phase);

  // The phase (upper 32 bits), and the number of its tasks that are taken.
  alignas(64) std::atomic<uint64_t> at_{0};
  alignas(64) std::atomic<int> done_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace runnel::cpu
