#include "server/host/fair_thread.h"

#include <algorithm>
#include <utility>

#include "base/thread_priority.h"

namespace runnel {

FairThread::FairThread(Mishaps* mishaps) : mishaps_(mishaps), thread_([this] { run(); }) {}

FairThread::~FairThread() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void FairThread::post(const std::string& account, std::function<void()> task) {
  std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(round_, account, &Account::name);
  if (known != round_.end()) {
    known->tasks.push_back(std::move(task));
    return;  // the thread looks again before it waits
  }
  std::list<Account> joining(1);
  joining.front().name = account;
  joining.front().tasks.push_back(std::move(task));
  round_.splice(round_.end(), joining);
  // With the lock held: once the task has run, the thread that waited for it may destroy this
  // object.
  posted_.notify_one();
}

void FairThread::run() {
  read_behind_others();
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return over_ || !round_.empty(); });
    if (round_.empty()) return;
    Account& account = round_.front();
    std::function<void()> task = std::move(account.tasks.front());
    account.tasks.pop_front();
    if (account.tasks.empty()) {
      round_.pop_front();
    } else {
      round_.splice(round_.end(), round_, round_.begin());
    }
    lock.unlock();
    mishaps_ == nullptr ? task() : mishaps_->contain(task);
    task = nullptr;
    lock.lock();
  }
}

}  // namespace runnel
