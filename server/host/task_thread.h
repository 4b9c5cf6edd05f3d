// One thread that does what others must not wait for: the scheduler hands the writing of messages
// to it and continues with the next step.
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
  // `mishaps` outlives it, and takes what tasks throw. Without it they throw nothing.
  explicit TaskThread(Mishaps* mishaps = nullptr);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  // Does what has been posted, then ends.
  ~TaskThread();

  // Has (object.get()->*kMember)() done soon, after what was posted before, and keeps the object
  // until then. Never waits for a task, and allocates only where more wait than ever did. What
  // keeps their number bounded is the caller's to know.
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
