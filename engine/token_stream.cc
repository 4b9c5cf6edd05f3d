#include "engine/token_stream.h"

#include <utility>

#include "base/check.h"

namespace runnel {

void StreamGroup::clear() {
  queued.reset();
  started.reset();
  values.clear();
  top.clear();
  finished.clear();
  end.reset();
}

bool StreamGroup::empty() const {
  return !queued && !started && values.empty() && finished.empty() && !end;
}

TokenStream::TokenStream(Delivery delivery, int room, int top_log_probs, std::function<void()> wake)
    : delivery_(delivery), room_(room), top_per_value_(top_log_probs), wake_(std::move(wake)) {
  values_.reserve(room);
  top_.reserve(static_cast<size_t>(room) * top_log_probs);
}

int64_t TokenStream::bytes(int room, int top_log_probs) {
  return static_cast<int64_t>(sizeof(StreamValue) + top_log_probs * sizeof(TopLogProb)) * room;
}

void TokenStream::attach(std::function<void()> resume) {
  std::lock_guard lock(mutex_);
  resume_ = std::move(resume);
}

bool TokenStream::due() const {
  if (queued_ || started_ || !finished_.empty() || end_) return true;
  if (values_.empty()) return false;
  return !sent_first_ || delayed_ || static_cast<int>(values_.size()) >= delivery_.max_values ||
         static_cast<int>(values_.size()) == room_;
}

void TokenStream::wake_if_due() {
  {
    std::lock_guard lock(mutex_);
    if (!reader_waits_ || !due()) return;
    reader_waits_ = false;
  }
  wake_();
}

int TokenStream::room() {
  std::lock_guard lock(mutex_);
  return room_ - static_cast<int>(values_.size());
}

void TokenStream::queue(const Queued& queued) {
  {
    std::lock_guard lock(mutex_);
    queued_ = queued;
  }
  wake_if_due();
}

void TokenStream::start(Started started) {
  {
    std::lock_guard lock(mutex_);
    started_ = std::move(started);
  }
  wake_if_due();
}

void TokenStream::push(int sample, const Emitted& emitted, TimePoint now) {
  {
    std::lock_guard lock(mutex_);
    check(static_cast<int>(values_.size()) < room_, "a stream has room for what is pushed");
    if (values_.empty()) oldest_ = now;
    values_.push_back({.sample = sample,
                       .value = emitted.value,
                       .position = emitted.position,
                       .log_prob = emitted.log_prob,
                       .top_count = static_cast<int32_t>(emitted.top.size())});
    check(std::ssize(emitted.top) <= top_per_value_,
          "no more top log-probabilities than asked for");
    top_.insert(top_.end(), emitted.top.begin(), emitted.top.end());
  }
  flush(now);
}

void TokenStream::finish(const Finished& finished) {
  {
    std::lock_guard lock(mutex_);
    finished_.push_back(finished);
  }
  wake_if_due();
}

void TokenStream::end(Status status) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    resume_ = nullptr;  // the scheduler may be gone when the reader takes the rest
    end_ = std::move(status);
  }
  wake_if_due();
}

void TokenStream::flush(TimePoint now) {
  {
    std::lock_guard lock(mutex_);
    if (!values_.empty() && now - oldest_ >= delivery_.max_delay) delayed_ = true;
  }
  wake_if_due();
}

bool TokenStream::take(StreamGroup& group) {
  group.clear();
  std::lock_guard lock(mutex_);
  if (!due()) {
    reader_waits_ = true;
    return false;
  }
  std::swap(group.queued, queued_);
  std::swap(group.started, started_);
  group.values.assign(values_.begin(), values_.end());
  group.top.assign(top_.begin(), top_.end());
  group.finished.swap(finished_);
  std::swap(group.end, end_);
  sent_first_ = sent_first_ || !values_.empty();
  delayed_ = false;
  values_.clear();
  top_.clear();
  if (std::exchange(starved_, false) && resume_) resume_();
  return true;
}

void TokenStream::starve() {
  {
    std::lock_guard lock(mutex_);
    if (values_.empty()) {  // taken since the scheduler looked
      if (resume_) resume_();
      return;
    }
    starved_ = true;
    delayed_ = true;
  }
  wake_if_due();
}

std::vector<int> TokenStream::take_stopped() {
  if (!has_stopped_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  has_stopped_.store(false, std::memory_order_release);
  return std::exchange(stopped_, {});
}

void TokenStream::stop(int sample) {
  std::lock_guard lock(mutex_);
  stopped_.push_back(sample);
  has_stopped_.store(true, std::memory_order_release);
  if (resume_) resume_();
}

void TokenStream::cancel() {
  cancelled_.store(true, std::memory_order_release);
  std::lock_guard lock(mutex_);
  if (resume_) resume_();
}

}  // namespace runnel
