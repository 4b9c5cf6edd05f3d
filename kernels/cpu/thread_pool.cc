#include "kernels/cpu/thread_pool.h"

#include "base/check.h"
#include "base/thread_priority.h"
#include "kernels/cpu/relax.h"

namespace runnel::cpu {
namespace {

constexpr uint32_t kClosed = 1U << 15;
constexpr uint32_t kJoined = kClosed - 1;
constexpr uint32_t kJob = 1U << 16;

// About fifty microseconds: longer than the gap between two steps of one batch.
constexpr int kWatches = 2000;

}  // namespace

ThreadPool::ThreadPool(int threads) : gate_(kClosed) {
  check(threads >= 1 && threads < static_cast<int>(kClosed), "a pool has at least one thread");
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true);
  gate_.store(kClosed | kJoined);  // no job has this many workers, so every worker sees a new value
  gate_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run(int tasks, Body body, const void* context) {
  if (workers_.empty() || tasks <= 1) {
    for (int task = 0; task < tasks; ++task) body(context, task, 0);
    return;
  }
  job_ = {body, context, tasks};
  next_task_.store(0, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  // The gate was closed, so nobody reads the job until this store opens it.
  const uint32_t number = gate_.load(std::memory_order_relaxed) / kJob + 1;
  gate_.store(number * kJob);
  wake(tasks - 1);
  take_tasks(0);
  const uint32_t joined = gate_.fetch_or(kClosed) & kJoined;
  for (int i = 0; left_.load(std::memory_order_acquire) != joined; ++i) {
    if (i < kWatches) {
      relax();
    } else {
      const uint32_t left = left_.load(std::memory_order_acquire);
      if (left != joined) left_.wait(left);
    }
  }
}

void ThreadPool::wake(int workers) {
  if (workers >= static_cast<int>(workers_.size())) {
    gate_.notify_all();
    return;
  }
  for (int i = 0; i < workers; ++i) gate_.notify_one();
}

void ThreadPool::take_tasks(int thread) {
  const Job job = job_;
  for (;;) {
    const int task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= job.tasks) return;
    job.body(job.context, task, thread);
  }
}

uint32_t ThreadPool::next_gate(uint32_t seen) const {
  for (int i = 0;; ++i) {
    const uint32_t gate = gate_.load(std::memory_order_acquire);
    if (gate / kJob != seen / kJob || stopping_.load(std::memory_order_relaxed)) return gate;
    if (i < kWatches) {
      relax();
    } else {
      gate_.wait(gate);
    }
  }
}

bool ThreadPool::enter(uint32_t gate) {
  const uint32_t number = gate / kJob;
  while ((gate & kClosed) == 0 && gate / kJob == number) {
    // There may be fewer tasks than workers. A worker that joins too late finds no task left, which
    // is harmless.
    if (gate_.compare_exchange_weak(gate, gate + 1)) return true;
  }
  return false;
}

void ThreadPool::work(int thread) {
  compute_behind_others();
  // The gate's value when the pool was made. A worker that starts late compares with it, so that it
  // notices a stop() that came before its first look at the gate.
  uint32_t seen = kClosed;
  for (;;) {
    const uint32_t gate = next_gate(seen);
    seen = gate;
    if (stopping_.load()) return;
    if (!enter(gate)) continue;
    take_tasks(thread);
    // Releases everything that the tasks wrote, so that the caller sees it. Both waits tolerate
    // spurious notifications.
    left_.fetch_add(1);
    left_.notify_one();
  }
}

}  // namespace runnel::cpu
