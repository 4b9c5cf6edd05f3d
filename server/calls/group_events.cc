#include "server/calls/group_events.h"

#include <algorithm>

namespace runnel {
namespace {

// Upper bounds in protobuf, the largest of the wire formats: a value with its log-probability and a
// run of its own.
constexpr size_t kValueBytes = 48;
constexpr size_t kTopBytes = 18;
// The same in memory: in a run, as a message, and encoded. A value's top log-probabilities are a
// message, and so is each of them, at 64 bytes or more.
constexpr int64_t kValueMemory = 152;
constexpr int64_t kTopsMemory = 96;
constexpr int64_t kTopMemory = 100;

}  // namespace

int64_t GroupEvents::bytes(int room, int top_log_probs) {
  const size_t values = kEventTarget / (kValueBytes + top_log_probs * kTopBytes) + 1;
  const int64_t value =
      kValueMemory + (top_log_probs > 0 ? kTopsMemory : 0) + top_log_probs * kTopMemory;
  return value * std::min<int64_t>(room, static_cast<int64_t>(values));
}

void GroupEvents::start(const StreamGroup& group) {
  group_ = &group;
  queued_ = false;
  started_ = false;
  value_ = 0;
  top_ = 0;
  finished_ = 0;
}

std::optional<GenerateEvent> GroupEvents::next() {
  if (group_ == nullptr) return std::nullopt;
  if (group_->queued && !queued_) {
    queued_ = true;
    return *group_->queued;
  }
  if (group_->started && !started_) {
    started_ = true;
    return *group_->started;
  }
  if (value_ < group_->values.size()) return cut_values();
  if (finished_ == group_->finished.size()) {
    group_ = nullptr;  // the caller may fill it again
    return std::nullopt;
  }
  const Finished& finished = group_->finished[finished_];
  if (ends_within_character(finished)) return rest_of_text(finished);
  ++finished_;
  return finished;
}

const Finished* GroupEvents::last_finished() const {
  if (group_ == nullptr || (group_->started && !started_)) return nullptr;
  if (value_ < group_->values.size()) return nullptr;
  if (finished_ + 1 != group_->finished.size()) return nullptr;
  const Finished& finished = group_->finished[finished_];
  return ends_within_character(finished) ? nullptr : &finished;
}

SampledValues GroupEvents::cut_values() {
  std::ranges::fill(last_run_, -1);
  used_ = 0;
  for (size_t bytes = 0; value_ < group_->values.size() && bytes < kEventTarget; ++value_) {
    const StreamValue& value = group_->values[value_];
    ValueRun& run = run_of(value);
    run.values.push_back(value.value);
    run.log_probs.push_back(value.log_prob);
    bytes += kValueBytes + kTopBytes * value.top_count + add_text(value, run);
    if (tokenizer_ != nullptr) run.text_ends.push_back(static_cast<int32_t>(run.text.size()));
    if (!with_top_) continue;
    run.top_counts.push_back(value.top_count);
    const auto first = group_->top.begin() + static_cast<std::ptrdiff_t>(top_);
    run.top.insert(run.top.end(), first, first + value.top_count);
    top_ += value.top_count;
  }
  return runs();
}

// Returns how many bytes of text it has added.
size_t GroupEvents::add_text(const StreamValue& value, ValueRun& run) {
  if (tokenizer_ == nullptr) return 0;
  const auto sample = static_cast<size_t>(value.sample);
  if (sample >= texts_.size()) texts_.resize(sample + 1);
  const size_t before = run.text.size();
  const bool is_first = value.position == 0;
  // A first value does not end a sample, even if it is a value that ends samples.
  if (!is_first && std::ranges::count(eos_, value.value) > 0) return 0;
  texts_[sample].add(tokenizer_->bytes(value.value, is_first), run.text);
  return run.text.size() - before;
}

bool GroupEvents::ends_within_character(const Finished& finished) const {
  const auto sample = static_cast<size_t>(finished.sample);
  return sample < texts_.size() && texts_[sample].is_waiting();
}

SampledValues GroupEvents::rest_of_text(const Finished& finished) {
  used_ = 0;
  ValueRun& run = add_run(finished.sample, finished.position);
  texts_[static_cast<size_t>(finished.sample)].end(run.text);
  return runs();
}

// The run that `value` continues, or a new one.
ValueRun& GroupEvents::run_of(const StreamValue& value) {
  const auto sample = static_cast<size_t>(value.sample);
  if (sample >= last_run_.size()) last_run_.resize(sample + 1, -1);
  if (last_run_[sample] >= 0) {
    ValueRun& run = runs_[static_cast<size_t>(last_run_[sample])];
    if (run.position + std::ssize(run.values) == value.position) return run;
  }
  last_run_[sample] = static_cast<int>(used_);
  return add_run(value.sample, value.position);
}

ValueRun& GroupEvents::add_run(int sample, int64_t position) {
  if (used_ == runs_.size()) runs_.emplace_back();
  ValueRun& run = runs_[used_++];
  run.sample = sample;
  run.position = position;
  run.values.clear();
  run.log_probs.clear();
  run.top_counts.clear();
  run.top.clear();
  run.text.clear();
  run.text_ends.clear();
  return run;
}

}  // namespace runnel
