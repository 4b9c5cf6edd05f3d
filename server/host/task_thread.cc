#include "server/host/task_thread.h"

#include <utility>

namespace runnel {

TaskThread::TaskThread(Mishaps* mishaps) : mishaps_(mishaps), thread_([this] { run(); }) {}

TaskThread::~TaskThread() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void TaskThread::add(Task task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  // Later tasks find the thread already woken. Notifies with the lock held: once the task has run,
  // the thread that waited for it may destroy this object.
  if (tasks_.size() == 1) posted_.notify_one();
}

void TaskThread::run() {
  std::vector<Task> taken;
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return over_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    taken.swap(tasks_);
    lock.unlock();
    for (const Task& task : taken) {
      const auto run = [&task] { task.run(task.object.get()); };
      mishaps_ == nullptr ? run() : mishaps_->contain(run);
    }
    taken.clear();
    lock.lock();
  }
}

}  // namespace runnel
