// A thread that runs tasks for threads that must not wait. For example, the scheduler has it write
// messages, and continues with the next step.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "server/host/mishaps.h"

namespace runnel {

class TaskThread {
 public:
  // `mishaps` gets the exceptions of tasks, and must outlive the object. Null: tasks must not
  // throw.
  explicit TaskThread(Mishaps* mishaps = nullptr);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  // Runs the tasks that have been posted, then ends the thread.
  ~TaskThread();

  // Has the thread call (object.get()->*kMember)() after the tasks that were posted before, and
  // keeps the object until then. Never waits for a task. Allocates only if more tasks wait than
  // ever before. The caller must bound their number.
  template <auto kMember, typename T>
  void post(std::shared_ptr<T> object) {
    add({std::move(object), [](void* held) { (static_cast<T*>(held)->*kMember)(); }});
  }

 private:
  struct Task {
    std::shared_ptr<void> object;
    void (*run)(void* object);
  };

  void add(Task task);
  void run();

  Mishaps* const mishaps_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Task> tasks_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace runnel
