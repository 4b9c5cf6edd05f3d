#include "engine/launches.h"

#include <algorithm>
#include <thread>

#include "base/check.h"

namespace runnel {
namespace {

// When a device counts as hanging. A long prompt can take minutes on a healthy one.
constexpr Duration kTimeout = std::chrono::seconds(60);
constexpr Duration kTimeoutOfInput = std::chrono::milliseconds(10);

Duration timeout_of(const Launch& launch) {
  int64_t inputs = 0;
  for (const Launch::Part& part : launch.parts) inputs += part.inputs;
  return kTimeout + inputs * launch.steps * kTimeoutOfInput;
}

}  // namespace

Launches::Launches(Model& model, TurnClock& time, EngineMetrics& metrics)
    : model_(model), time_(time), metrics_(metrics), launches_(model.limits().launches) {
  const ModelLimits limits = model.limits();
  const auto rows = static_cast<size_t>(limits.rows);
  for (Launch& launch : launches_) launch.parts.reserve(rows);
  rows_.reserve(rows);
  emitted_.reserve(rows * limits.steps + limits.values);
}

void Launches::add(const Subject& subject, Want want, int inputs) {
  std::span<const int32_t> values;
  if (want != Want::kNext) values = subject.unfed().first(inputs);
  if (rows_.empty()) launches_[on_their_way_].parts.clear();
  launches_[on_their_way_].parts.push_back({subject, want, inputs});
  const int top = want == Want::kScores ? subject.score->top_log_probs : 0;
  rows_.push_back({subject.session().slot, values, want, top});
}

void Launches::submit(int steps) {
  Launch& launch = launches_[on_their_way_];
  launch.steps = steps;
  launch.submitted = time_.read();
  launch.ticket = model_.submit(rows_, steps);
  rows_.clear();
  ++on_their_way_;
}

Status Launches::collect() {
  const Status status = wait_for(launches_.front());
  time_.read();
  if (!status.ok()) {
    on_their_way_ = 0;
    return status;
  }
  std::rotate(launches_.begin(), launches_.begin() + 1, launches_.end());
  --on_their_way_;
  note_steps(launches_.back());
  return {};
}

Status Launches::wait_for(const Launch& launch) {
  const TimePoint end = std::chrono::steady_clock::now() + timeout_of(launch);
  emitted_.clear();
  while (true) {
    const Result<bool> done = model_.collect(launch.ticket, emitted_);
    if (!done.ok()) return done.status();
    if (*done) return {};
    check(std::chrono::steady_clock::now() < end, "the device answers in time");
    std::this_thread::yield();
  }
}

// The times of launches: each begins when the one before has ended.
void Launches::note_steps(Launch& launch) {
  const TimePoint now = time_.now();
  const Duration elapsed = now - std::max(launch.submitted, collected_at_);
  collected_at_ = now;
  launch.decoding = launch.fed = 0;
  for (const Launch::Part& part : launch.parts) {
    (part.want == Want::kNext ? launch.decoding : launch.fed) += part.inputs;
  }
  launch.took = elapsed / launch.steps;
  metrics_.step_time.observe(launch.took, launch.steps);
  metrics_.step_rows.observe(std::ssize(launch.parts), launch.steps);
  metrics_.step_values.observe(launch.decoding + launch.fed, launch.steps);
}

}  // namespace runnel
