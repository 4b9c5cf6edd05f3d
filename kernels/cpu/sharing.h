// Divides an operation among the threads of a backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/phases.h"

namespace runnel::cpu {

inline int divide_up(int64_t count, int64_t by) { return static_cast<int>((count + by - 1) / by); }

// The beginning of part `index`, if [0, count) is divided into `parts` nearly equal parts.
inline int part(int count, int index, int parts) {
  return static_cast<int>(int64_t{count} * index / parts);
}

// One thread's share of the operations.
class Sharing {
 public:
  explicit Sharing(const Kernels& kernels) : longest_task_(kernels.longest_task) {}

  // From here on, `threads` threads run the same operations together.
  void begin(Phases& phases, int threads) {
    phases_ = &phases;
    phase_ = 0;
    threads_ = threads;
  }
  void end() { phases_ = nullptr; }

  bool is_on() const { return phases_ != nullptr; }
  int threads() const { return threads_; }
  uint32_t phase() const { return phase_; }  // the next phase

  // The number of threads that share an operation. `nanoseconds`: about the time that one thread
  // would need for it.
  int threads_for(int64_t nanoseconds) const {
    if (!is_on()) return 1;
    return static_cast<int>(std::clamp<int64_t>(nanoseconds / kWorthAThread, 1, threads_));
  }
  // The number of tasks to divide an operation into.
  int tasks_for(int64_t nanoseconds) const {
    if (!is_on()) return 1;
    return std::max(threads_for(nanoseconds), static_cast<int>(nanoseconds / longest_task_));
  }
  // The number of tasks to divide products into. Long tasks load weights faster, and short ones let
  // threads end together.
  int product_tasks(int64_t nanoseconds) const {
    const int threads = threads_for(nanoseconds);
    return tasks_for(nanoseconds) <= threads ? threads : kTasksOfAThread * threads;
  }
  // Calls body(begin, end) for parts that cover [0, count). If threads share operations, they share
  // the parts.
  template <typename F>
  void split(int count, int64_t nanoseconds, const F& body) {
    const int tasks = std::min(count, tasks_for(nanoseconds));
    share(tasks, [&](int task) { body(part(count, task, tasks), part(count, task + 1, tasks)); });
  }
  // Calls body(task) for tasks of [0, tasks). If threads share operations, they share the tasks.
  template <typename F>
  void share(int tasks, const F& body) {
    if (tasks <= 0) return;
    if (phases_ != nullptr) {
      phases_->run(phase_++, tasks, body);
      return;
    }
    for (int task = 0; task < tasks; ++task) body(task);
  }

 private:
  // Sharing an operation costs a barrier. It pays only above this much work for each thread, in
  // nanoseconds.
  static constexpr int64_t kWorthAThread = 300;
  // The tasks of each thread in long products.
  static constexpr int kTasksOfAThread = 4;

  const int64_t longest_task_;
  Phases* phases_ = nullptr;  // set: the threads share each operation
  uint32_t phase_ = 0;
  int threads_ = 1;
};

}  // namespace runnel::cpu
