// How the threads of a backend share an operation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/phases.h"

namespace runnel::cpu {

inline int divide_up(int64_t count, int64_t by) { return static_cast<int>((count + by - 1) / by); }

// Where part `index` of `parts` nearly equal ones of [0, count) begins.
inline int part(int count, int index, int parts) {
  return static_cast<int>(int64_t{count} * index / parts);
}

// One thread's side of it.
class Sharing {
 public:
  explicit Sharing(const Kernels& kernels) : longest_task_(kernels.longest_task) {}

  // From here on `threads` threads go through the same operations together.
  void begin(Phases& phases, int threads) {
    phases_ = &phases;
    phase_ = 0;
    threads_ = threads;
  }
  void end() { phases_ = nullptr; }

  bool is_on() const { return phases_ != nullptr; }
  int threads() const { return threads_; }
  uint32_t phase() const { return phase_; }  // that comes next

  // The tasks to share an operation in. `nanoseconds`: about what one thread would need for it.
  int tasks_for(int64_t nanoseconds) const {
    if (!is_on()) return 1;
    const int64_t threads = std::clamp<int64_t>(nanoseconds / kWorthAThread, 1, threads_);
    return static_cast<int>(std::max(threads, nanoseconds / longest_task_));
  }
  // Calls body(begin, end) for parts of [0, count) that together cover it, and shares them with the
  // other threads where they take part.
  template <typename F>
  void split(int count, int64_t nanoseconds, const F& body) {
    const int tasks = std::min(count, tasks_for(nanoseconds));
    share(tasks, [&](int task) { body(part(count, task, tasks), part(count, task + 1, tasks)); });
  }
  // Calls body(task) for tasks of [0, tasks), together with the other threads where they take part.
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

  const int64_t longest_task_;
  Phases* phases_ = nullptr;  // set: the threads share each operation
  uint32_t phase_ = 0;
  int threads_ = 1;
};

}  // namespace runnel::cpu
