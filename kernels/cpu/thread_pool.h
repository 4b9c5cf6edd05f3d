// A fixed team of threads for work that takes microseconds.
//
// The caller takes part and never waits for a worker that has not yet come: a worker that is
// parked, or whose core does something else, just misses the job. Idle workers watch for a new job
// for tens of microseconds and then sleep in the kernel. With one thread there are no threads at
// all.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace runnel::cpu {

class ThreadPool {
 public:
  // Called once for each task; `thread` is in [0, threads()), and no two calls at a time have the
  // same.
  using Body = void (*)(const void* context, int task, int thread);

  // `threads` counts the caller's and is at least 1. Throws std::system_error when one cannot be
  // started.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(context, task, thread) for every task in [0, tasks), in any order, on at most
  // min(tasks, threads()) threads; returns when all calls have. One caller at a time.
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
  // Waits for a gate other than `seen`, first watching, then asleep.
  uint32_t next_gate(uint32_t seen) const;
  // Joins the job behind the gate unless it is closed.
  bool enter(uint32_t gate);
  void take_tasks(int thread);

  // The job's number (upper 16 bits), whether it is closed (bit 15), and how many workers have
  // joined it.
  alignas(64) std::atomic<uint32_t> gate_;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<int> next_task_{0};
  // Workers that have joined this job and are done with it.
  alignas(64) std::atomic<uint32_t> left_{0};
  // Written between jobs alone, while nobody reads them.
  alignas(64) Job job_;
  std::vector<std::thread> workers_;
};

}  // namespace runnel::cpu
