// One thread that works for several accounts. They take turns, so an account with much work delays
// its own tasks, and others by one task at a time.
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
  // `mishaps` outlives it, and takes what tasks throw. Without it they throw nothing.
  explicit FairThread(Mishaps* mishaps = nullptr);
  FairThread(const FairThread&) = delete;
  FairThread& operator=(const FairThread&) = delete;
  // Does what has been posted, then ends.
  ~FairThread();

  // Does `task` soon; tasks of one account in their order. The caller bounds their number. Throws
  // std::bad_alloc, and `task` is not done then.
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
  std::list<Account> round_;  // those with tasks; the first has the next turn
  bool over_ = false;
  std::thread thread_;
};

}  // namespace runnel
