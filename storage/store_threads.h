// Threads on which a store works, so that no other thread waits for it. The queue is bounded, and
// nobody waits longer than a timeout for an outcome or, while states are copied, for the next piece
// of a state.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/within_memory.h"

namespace runnel {

class StoreThreads {
 public:
  // `most`: the maximum number of jobs that wait or run. `clock` must outlive the object.
  StoreThreads(int threads, size_t most, Duration timeout, const Clock& clock);
  StoreThreads(const StoreThreads&) = delete;
  StoreThreads& operator=(const StoreThreads&) = delete;
  // Runs all jobs that wait, then ends the threads.
  ~StoreThreads();

  // Runs `work` on one of the threads. Calls `done` exactly once, with one of these outcomes:
  // - the outcome of `work`, on that thread;
  // - UNAVAILABLE, in tend(), after the timeout;
  // - RESOURCE_EXHAUSTED, before run() returns, if too many jobs wait or run.
  // `done` must not block. If `work` succeeds after the timeout, `late` gets its value.
  template <typename T>
  void run(std::function<Result<T>()> work, std::function<void(Result<T>)> done,
           std::function<void(T)> late = {}) {
    add(made(in_one_piece(std::move(work)), std::move(done), std::move(late)));
  }

  // Begins the timeout again, because the work has made progress.
  using Progress = std::function<void()>;
  // The same for work that copies a state piece by piece, however long that takes in all. It must
  // call its argument before each piece. At most half of the threads, or a single thread, run
  // such work, so that other jobs do not wait for it. While it waits for a thread, its timeout
  // begins again with each piece that other work copies, unless that work is late itself.
  template <typename T>
  void run_in_pieces(std::function<Result<T>(const Progress&)> work,
                     std::function<void(Result<T>)> done) {
    auto job = made(std::move(work), std::move(done), std::function<void(T)>());
    job->in_pieces = true;
    add(std::move(job));
  }

  // The same for a long job. Only one long job runs at a time, and the others wait, so that long
  // jobs do not use all threads.
  template <typename T>
  void run_in_turn(std::function<Result<T>()> work, std::function<void(Result<T>)> done) {
    auto job = made(in_one_piece(std::move(work)), std::move(done), std::function<void(T)>());
    job->in_turn = true;
    add(std::move(job));
  }

  // Calls `done` of all jobs that have exceeded the timeout. To be called about once a second.
  void tend();
  // Waits until no job waits or runs, but not longer than `at_most`. Returns true if no job waits
  // or runs.
  bool wait_until_idle(Duration at_most);

 private:
  struct Job {
    std::function<void(const std::shared_ptr<Job>&)> run;
    std::function<void(Status)> fail;
    TimePoint until{};
    bool in_turn = false;
    bool in_pieces = false;
  };
  using Queue = std::deque<std::shared_ptr<Job>>;

  template <typename T>
  static std::function<Result<T>(const Progress&)> in_one_piece(std::function<Result<T>()> work) {
    return [work = std::move(work)](const Progress&) { return work(); };
  }

  template <typename T>
  std::shared_ptr<Job> made(std::function<Result<T>(const Progress&)> work,
                            std::function<void(Result<T>)> done, std::function<void(T)> late) {
    auto job = std::make_shared<Job>();
    job->fail = done;
    job->run = [this, work = std::move(work), done = std::move(done),
                late = std::move(late)](const std::shared_ptr<Job>& self) {
      Result<T> outcome = within_memory([&] { return work([this, &self] { extend(self); }); });
      if (settle(self)) {
        done(std::move(outcome));
      } else if (late && outcome.ok()) {
        late(std::move(*outcome));
      }
    };
    return job;
  }

  void add(std::shared_ptr<Job> job);
  void extend(const std::shared_ptr<Job>& job);
  bool may_begin(const Job& job) const;
  bool settle(const std::shared_ptr<Job>& job);
  void fail(const std::shared_ptr<Job>& job, const Status& status);
  Queue::iterator next();
  void work();

  const size_t most_;
  const int most_in_pieces_;  // running jobs that are Job::in_pieces
  const Duration timeout_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable idle_;
  Queue queue_;
  std::set<std::shared_ptr<Job>> unsettled_;  // jobs whose `done` has not been called
  int running_ = 0;                           // running jobs
  int in_pieces_ = 0;                         // running jobs that are Job::in_pieces
  bool turn_taken_ = false;                   // a running job is Job::in_turn
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace runnel
