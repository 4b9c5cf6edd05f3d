// One thread that works for several accounts. They take turns, task by task, so an account with
// much work mostly delays its own tasks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "server/host/mishaps.h"

namespace runnel {

class FairThread {
 public:
  // `mishaps` gets the exceptions of tasks, and must outlive the object. Null: tasks must not
  // throw.
  explicit FairThread(Mishaps* mishaps = nullptr);
  FairThread(const FairThread&) = delete;
  FairThread& operator=(const FairThread&) = delete;
  // Runs the tasks that have been posted, then ends the thread.
  ~FairThread();

  // Has the thread run `task`. Tasks of one account run in their order. The caller must bound their
  // number. If post() throws std::bad_alloc, `task` is not run.
  void post(const std::string& account, std::function<void()> task);

 private:
  struct Account {
    std::string name;
    std::deque<std::function<void()>> tasks;
  };

  void run();

  Mishaps* const mishaps_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::list<Account> round_;  // the accounts with tasks; the first one has the next turn
  bool over_ = false;
  std::thread thread_;
};

}  // namespace runnel
