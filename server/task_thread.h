// One thread that does what others must not wait for: the scheduler hands the writing of messages
// to it and goes on stepping.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace runnel {

class TaskThread {
 public:
  TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  // Does what has been posted, then ends.
  ~TaskThread();

  // Has `task` done soon, after those posted before. Never waits for a task. What keeps the number
  // of tasks bounded is the caller's to know.
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::function<void()>> tasks_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace runnel
