// A fixed team of threads for work that takes microseconds.
//
// The caller takes part in the work. It never waits for a worker that has not joined yet: a worker
// that sleeps, or whose core runs something else, misses the job. Idle workers spin for tens of
// microseconds, waiting for a new job, and then sleep in the kernel. A pool of one thread starts no
// threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace runnel::cpu {

class ThreadPool {
 public:
  // Called once for each task. `thread` is in [0, threads()). No two calls at the same time have
  // the same `thread`.
  using Body = void (*)(const void* context, int task, int thread);

  // `threads` includes the caller's, and is at least 1. Throws std::system_error if a thread cannot
  // be started.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(context, task, thread) for every task in [0, tasks), in any order, on at most
  // min(tasks, threads()) threads. Returns when all calls have returned. Only one caller at a time.
  void run(int tasks, Body body, const void* context);

  // The same for a callable `body(task, thread)`.
  template <typename F>
  void for_each(int tasks, const F& body) {
    run(
        tasks,
        [](const void* context, int task, int thread) {
          (*static_cast<const F*>(context))(task, thread);
        },
        &body);
  }

 private:
  struct Job {
    Body body = nullptr;
    const void* context = nullptr;
    int tasks = 0;
  };

  void stop();
  void work(int thread);
  // Wakes this many of the sleeping workers.
  void wake(int workers);
  // Waits until the gate differs from `seen`: first spins, then sleeps.
  uint32_t next_gate(uint32_t seen) const;
  // Joins the job of this gate. False if the gate is closed.
  bool enter(uint32_t gate);
  void take_tasks(int thread);

  // The job's number (upper 16 bits), whether it is closed (bit 15), and how many workers have
  // joined it.
  alignas(64) std::atomic<uint32_t> gate_;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<int> next_task_{0};
  // The number of workers that have joined this job and finished their part.
  alignas(64) std::atomic<uint32_t> left_{0};
  // Written only between jobs, while no thread reads it.
  alignas(64) Job job_;
  std::vector<std::thread> workers_;
};

}  // namespace runnel::cpu
