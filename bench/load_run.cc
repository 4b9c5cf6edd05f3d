#include "bench/load_run.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <unordered_map>
#include <utility>

#include "client/client.h"
#include "client/stubs.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kTick = milliseconds(100);
constexpr auto kRefusedPause =
    milliseconds(50);  // before a new call replaces a refused one, at fixed concurrency
constexpr auto kCancelled = std::chrono::seconds(5);  // for cancelled calls to end

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

class LoadRun {
 public:
  LoadRun(const Stubs& stubs, const LoadRunOptions& options, const LoadWatch& watch);
  LoadFigures run();

 private:
  class Call;
  enum class Next { kRead, kCancel, kStall };

  // On the pacing thread.
  void start_due(TimePoint now);
  void resume_due(TimePoint now);
  void start(const PlannedCall& planned, TimePoint due);
  void wait(std::unique_lock<std::mutex>& lock);
  void drain();
  void cancel_all();
  bool tell();

  // On gRPC's threads.
  Next take(Call& call, const v1::GenerateResponse& response);
  Next take_values(Call& call, const v1::Values& values, TimePoint now);
  void stall(Call& call);
  void ended(Call& call, const grpc::Status& status);
  void count_end(Call& call, const grpc::Status& status, TimePoint now);

  bool measured(TimePoint time) const { return time >= begin_ && time < end_; }
  bool has_open() const;

  const Stubs& stubs_;
  const LoadRunOptions& options_;
  const LoadWatch& watch_;
  const TimePoint start_, begin_, end_;
  LoadPlan plan_;
  PlannedCall next_;  // used by the pacing thread only
  size_t made_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  LoadFigures figures_;
  int64_t all_values_ = 0;
  std::unordered_map<const Call*, std::shared_ptr<Call>> open_;
  std::vector<std::shared_ptr<Call>> ended_;  // no gRPC thread destroys a call after the run
  std::vector<std::pair<TimePoint, std::shared_ptr<Call>>> stalled_;  // with their resume times
  // At fixed concurrency: when the next calls may be made.
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> turns_;
  bool is_over_ = false;  // calls no longer stall
};

// Owned by open_ until it has ended, then by ended_ until the pacing thread releases it.
class LoadRun::Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(LoadRun& run, const PlannedCall& planned_call, TimePoint due_at)
      : planned(planned_call), due(due_at), run_(run) {
    const auto& options = run.options_;
    request_.set_model(options.model);
    const auto prompt = random_prompt(planned.prompt, options.vocabulary, planned.seed);
    if (!prompt.empty()) {
      request_.mutable_values()->mutable_values()->Add(prompt.begin(), prompt.end());
    }
    request_.set_samples(1);
    request_.set_max_values(planned.values);
    request_.set_ignore_eos(true);  // the call must have planned.values values
    request_.mutable_sampling()->set_seed(planned.seed);
    if (options.values_per_message > 0) {
      request_.mutable_delivery()->set_max_values(options.values_per_message);
    }
    if (options.max_queue_time) {
      *request_.mutable_max_queue_time() = wire_duration(*options.max_queue_time);
    }
  }

  void start(v1::Inference::Stub& stub, std::chrono::system_clock::time_point deadline) {
    context_.set_deadline(deadline);
    stub.async()->Generate(&context_, &request_, this);
    // A call that may pause between two reads must not end during the pause.
    is_held_ = planned.manner == Manner::kStalls;
    if (is_held_) AddHold();
    StartRead(&response_);
    StartCall();
  }

  // Called on the pacing thread while the call stalls.
  void resume() {
    is_held_ = false;
    StartRead(&response_);
    RemoveHold();
  }

  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (std::exchange(is_held_, false)) RemoveHold();
      return;
    }
    switch (run_.take(*this, response_)) {
      case Next::kCancel:
        context_.TryCancel();
        StartRead(&response_);
        break;
      case Next::kRead:
        StartRead(&response_);
        break;
      case Next::kStall:
        run_.stall(*this);
        break;
    }
  }

  void OnDone(const grpc::Status& status) override { run_.ended(*this, status); }

  const PlannedCall planned;
  const TimePoint due;

  // Updated by the run, with its lock held.
  bool waited = false, started = false, broke = false;
  int64_t values = 0, measured_values = 0;
  TimePoint last_values{};

 private:
  LoadRun& run_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  grpc::ClientContext context_;
  bool is_held_ = false;
};

LoadRun::LoadRun(const Stubs& stubs, const LoadRunOptions& options, const LoadWatch& watch)
    : stubs_(stubs),
      options_(options),
      watch_(watch),
      start_(SteadyClock::now()),
      begin_(start_ + options.warm_up),
      end_(begin_ + options.duration),
      plan_(options.traffic, options.rate),
      next_(plan_.next()) {
  figures_.seconds = seconds_of(options.duration);
  figures_.rate = options.rate;
  figures_.concurrency = options.rate > 0 ? 0 : options.concurrency;
  for (int i = 0; options.rate == 0 && i < options.concurrency; ++i) turns_.push(start_);
}

LoadFigures LoadRun::run() {
  bool stopped = false;
  for (TimePoint now = start_; now < end_ && !stopped; now = SteadyClock::now()) {
    start_due(now);
    resume_due(now);
    std::unique_lock lock(mutex_);
    wait(lock);
    lock.unlock();
    stopped = tell();
  }
  // Starts the calls that fell due while this thread waited for the processor.
  if (!stopped && options_.rate > 0) start_due(end_);
  if (!stopped) drain();
  cancel_all();
  std::lock_guard lock(mutex_);
  return figures_;
}

// Waits until something is due, but at most one tick.
void LoadRun::wait(std::unique_lock<std::mutex>& lock) {
  TimePoint until = std::min<TimePoint>(SteadyClock::now() + kTick, end_);
  if (options_.rate > 0) {
    until = std::min(until, start_ + next_.at);
  } else if (!turns_.empty()) {
    until = std::min(until, turns_.top());
  }
  for (const auto& [time, call] : stalled_) until = std::min(until, time);
  wake_.wait_until(lock, until);
}

void LoadRun::start_due(TimePoint now) {
  if (options_.rate > 0) {
    for (; start_ + next_.at <= now; next_ = plan_.next()) start(next_, start_ + next_.at);
    return;
  }
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (turns_.empty() || turns_.top() > now) return;
      turns_.pop();
    }
    start(std::exchange(next_, plan_.next()), now);
  }
}

void LoadRun::start(const PlannedCall& planned, TimePoint due) {
  const auto call = std::make_shared<Call>(*this, planned, due);
  const TimePoint now = SteadyClock::now();
  {
    std::lock_guard lock(mutex_);
    if (measured(due)) {
      ++figures_.due;
      figures_.late.add(seconds_of(now - due));
    }
    if (static_cast<int>(open_.size()) >= options_.most_open) {
      if (measured(due)) ++figures_.dropped;
      return;
    }
    open_.emplace(call.get(), call);
  }
  // The end of the run cancels what is left; the deadline is for a server that does not answer.
  const Duration left = end_ - now + options_.grace + 2 * Duration(kCancelled);
  call->start(*stubs_.inference[made_++ % stubs_.inference.size()],
              std::chrono::system_clock::now() +
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
}

void LoadRun::resume_due(TimePoint now) {
  std::vector<std::shared_ptr<Call>> due;
  std::vector<std::shared_ptr<Call>> ended;  // destroyed after the lock is released
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
    std::erase_if(stalled_, [&](auto& entry) {
      const bool is_due = entry.first <= now || is_over_;
      if (is_due) due.push_back(std::move(entry.second));
      return is_due;
    });
  }
  for (const auto& call : due) call->resume();
}

bool LoadRun::has_open() const {
  std::lock_guard lock(mutex_);
  return !open_.empty();
}

// Makes no more calls, and gives open ones the grace period.
void LoadRun::drain() {
  const TimePoint until = end_ + options_.grace;
  for (TimePoint now = SteadyClock::now(); now < until && has_open(); now = SteadyClock::now()) {
    resume_due(now);
    {
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, std::min<TimePoint>(now + kTick, until));
    }
    if (tell()) return;
  }
}

// Cancels the calls that are left, and waits until all of them have ended.
void LoadRun::cancel_all() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
    for (const auto& [key, call] : open_) calls.push_back(call);
    for (const auto& call : calls) {
      if (measured(call->due)) ++figures_.unfinished;
    }
  }
  for (const auto& call : calls) call->cancel();
  calls.clear();
  while (true) {
    resume_due(SteadyClock::now());
    std::unique_lock lock(mutex_);
    if (open_.empty()) return;
    wake_.wait_for(lock, kTick);
  }
}

// Reports progress. Returns true if the run is to stop.
bool LoadRun::tell() {
  RunProgress progress;
  {
    std::lock_guard lock(mutex_);
    progress = {.seconds = seconds_of(SteadyClock::now() - start_),
                .total_seconds = seconds_of(end_ - start_),
                .values = all_values_};
  }
  if (watch_.progress) watch_.progress(progress);
  return watch_.stopped && watch_.stopped();
}

LoadRun::Next LoadRun::take(Call& call, const v1::GenerateResponse& response) {
  const TimePoint now = SteadyClock::now();
  std::lock_guard lock(mutex_);
  if (response.has_queued()) {
    if (!std::exchange(call.waited, true) && measured(call.due)) ++figures_.waited;
    return Next::kRead;
  }
  call.started = true;
  return response.has_values() ? take_values(call, response.values(), now) : Next::kRead;
}

LoadRun::Next LoadRun::take_values(Call& call, const v1::Values& values, TimePoint now) {
  int64_t count = 0;
  for (const v1::ValueRun& run : values.runs()) count += run.values_size();
  if (call.values == 0 && count > 0 && measured(call.due)) {
    figures_.first_value.add(seconds_of(now - call.due));
  }
  if (measured(now)) {
    if (call.last_values != TimePoint{}) figures_.gap.add(seconds_of(now - call.last_values));
    ++figures_.messages;
    figures_.values += count;
    call.measured_values += count;
  }
  call.values += count;
  call.last_values = now;
  all_values_ += count;
  if (call.broke || call.planned.manner == Manner::kReads) return Next::kRead;
  if (call.values < call.planned.break_after || is_over_) return Next::kRead;
  call.broke = true;
  if (call.planned.manner == Manner::kCancels) return Next::kCancel;
  call.last_values = {};  // the client's own pause is not a gap of the server's
  return Next::kStall;
}

void LoadRun::stall(Call& call) {
  std::lock_guard lock(mutex_);
  stalled_.emplace_back(SteadyClock::now() + options_.stall, open_.at(&call));
  wake_.notify_one();
}

void LoadRun::ended(Call& call, const grpc::Status& status) {
  const TimePoint now = SteadyClock::now();
  std::lock_guard lock(mutex_);
  const auto found = open_.find(&call);
  ended_.push_back(std::move(found->second));
  open_.erase(found);
  if (!is_over_) count_end(call, status, now);
  if (options_.rate == 0) {
    turns_.push(status.ok() || call.started ? now : now + Duration(kRefusedPause));
  }
  wake_.notify_one();
}

void LoadRun::count_end(Call& call, const grpc::Status& status, TimePoint now) {
  const bool is_whole = status.ok() && call.values == call.planned.values;
  if (is_whole) {
    figures_.good_values += call.measured_values;
    figures_.good_calls +=
        static_cast<double>(call.measured_values) / static_cast<double>(call.values);
  }
  if (!measured(call.due)) return;
  const double seconds = seconds_of(now - call.due);
  if (call.broke && call.planned.manner == Manner::kStalls) ++figures_.stalled;
  if (is_whole) {
    ++figures_.completed;
    figures_.call.add(seconds);
  } else if (status.ok()) {
    ++figures_.failed["SHORT"];
  } else if (call.broke && call.planned.manner == Manner::kCancels) {
    ++figures_.cancelled;
  } else if (!call.started) {
    Refusals& refusals = figures_.refused[code_name(static_cast<Code>(status.error_code()))];
    ++refusals.count;
    refusals.latency.add(seconds);
  } else {
    ++figures_.failed[code_name(static_cast<Code>(status.error_code()))];
  }
}

}  // namespace

LoadFigures run_load_once(const Stubs& stubs, const LoadRunOptions& options,
                          const LoadWatch& watch) {
  return LoadRun(stubs, options, watch).run();
}

}  // namespace runnel
