#include "storage/store_threads.h"

#include <algorithm>
#include <string>

namespace runnel {

StoreThreads::StoreThreads(int threads, size_t most, Duration timeout, const Clock& clock)
    : most_(most), most_in_pieces_(std::max(1, threads / 2)), timeout_(timeout), clock_(clock) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

StoreThreads::~StoreThreads() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void StoreThreads::add(std::shared_ptr<Job> job) {
  {
    std::lock_guard lock(mutex_);
    if (unsettled_.size() < most_) {
      job->until = clock_.now() + timeout_;
      unsettled_.insert(job);
      queue_.push_back(std::move(job));
      posted_.notify_one();
      return;
    }
  }
  Status status(Code::kResourceExhausted, "too many calls wait for the store; try again");
  job->fail(status.with_retry_after(std::chrono::milliseconds(100)).with_reason("storage"));
}

void StoreThreads::extend(const std::shared_ptr<Job>& job) {
  std::lock_guard lock(mutex_);
  if (!unsettled_.contains(job)) return;
  job->until = clock_.now() + timeout_;
  for (const auto& waiting : queue_) {
    if (waiting->in_pieces) waiting->until = job->until;
  }
}

// True for the first caller only, who must then call `done`.
bool StoreThreads::settle(const std::shared_ptr<Job>& job) {
  std::lock_guard lock(mutex_);
  return unsettled_.erase(job) == 1;
}

// Reports `status` as the outcome of the job, unless an outcome has been reported. If there is no
// memory for the report, nothing is reported.
void StoreThreads::fail(const std::shared_ptr<Job>& job, const Status& status) {
  if (!settle(job)) return;
  static_cast<void>(within_memory([&] {
    job->fail(status);
    return Status();
  }));
}

// With the mutex held.
bool StoreThreads::may_begin(const Job& job) const {
  if (job.in_pieces) return in_pieces_ < most_in_pieces_;
  return !job.in_turn || !turn_taken_;
}

// With the mutex held: the first job in the queue that may begin.
StoreThreads::Queue::iterator StoreThreads::next() {
  return std::ranges::find_if(queue_, [this](const auto& job) { return may_begin(*job); });
}

// A thread whose job has ended looks for the next one itself, so no other thread is notified.
void StoreThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return over_ || next() != queue_.end(); });
    const auto first = next();
    if (first == queue_.end()) return;
    std::shared_ptr<Job> job = std::move(*first);
    queue_.erase(first);
    ++running_;
    const bool in_turn = job->in_turn, in_pieces = job->in_pieces;
    turn_taken_ |= in_turn;
    in_pieces_ += in_pieces;
    lock.unlock();
    const Status done = within_memory([&] {
      job->run(job);
      return Status();
    });
    if (!done.ok()) fail(job, done);
    job.reset();
    lock.lock();
    --running_;
    if (in_turn) turn_taken_ = false;
    in_pieces_ -= in_pieces;
    if (queue_.empty() && running_ == 0) idle_.notify_all();
  }
}

bool StoreThreads::wait_until_idle(Duration at_most) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, at_most, [&] { return queue_.empty() && running_ == 0; });
}

void StoreThreads::tend() {
  std::vector<std::shared_ptr<Job>> late;
  {
    std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    for (const auto& job : unsettled_) {
      if (now >= job->until) late.push_back(job);
    }
    // A late job that waits never begins, so its memory does not pile up while all threads hang.
    std::erase_if(queue_, [now](const auto& job) { return now >= job->until; });
  }
  for (const auto& job : late) {
    Status status(Code::kUnavailable, "the store has not answered within " +
                                          std::to_string(timeout_ / std::chrono::milliseconds(1)) +
                                          " ms (storage.timeout_ms)");
    fail(job, status.with_retry_after(std::chrono::seconds(1)).with_reason("storage"));
  }
}

}  // namespace runnel
