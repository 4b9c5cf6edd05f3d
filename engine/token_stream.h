// A bounded queue of the values of one generation. The scheduler fills it, and a reader takes the
// values and sends them to the client.
//
// The scheduler never blocks here: it asks for room() before it advances a row, and leaves the row
// out of the batch if there is none. The reader takes the first value at once. Then it takes groups
// of Delivery::max_values values, or after max_delay, and the rest when a sample finishes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/request.h"
#include "models/model.h"

namespace runnel {

// One value. Its top log-probabilities are in StreamGroup::top.
struct StreamValue {
  int32_t sample = 0;
  int32_t value = 0;
  int64_t position = 0;
  float log_prob = 0.0F;
  int32_t top_count = 0;
};

// The events that take() returns. They must be sent in this order: queued, started, values,
// finished, end.
struct StreamGroup {
  std::optional<Queued> queued;  // the last one since the previous group
  std::optional<Started> started;
  std::vector<StreamValue> values;
  std::vector<TopLogProb> top;  // of all values, in order; each value has top_count of them
  std::vector<Finished> finished;
  std::optional<Status> end;  // the last event; OK if every sample finished

  void clear();
  bool empty() const;
};

class TokenStream {
 public:
  // `room`: the maximum number of values that it holds; at least twice as many as one launch can
  // push. `top_log_probs`: the maximum number of top log-probabilities of a value. `wake` is called
  // from the scheduler's thread, without a lock held, when take() would return something after it
  // returned false. It must not block, and must not call take() for another stream.
  TokenStream(Delivery delivery, int room, int top_log_probs, std::function<void()> wake);
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  // The bytes of the values that a stream with these arguments can hold.
  static int64_t bytes(int room, int top_log_probs);

  // --- The scheduler's side ---

  // Sets a function that is called when the reader has made room that the scheduler waits for,
  // stops a sample, or cancels the call. It is called from the reader's thread or within starve(),
  // and never after end() has returned. It must not block, and must not call the stream. To be
  // called once, before the scheduler uses the stream.
  void attach(std::function<void()> resume);
  // How many values can be pushed before the reader takes any.
  int room();
  // Notes that the scheduler has left out the stream's rows because there is no room. All values
  // become due at once, and the next take() calls `resume`. If the reader has already taken all
  // values, starve() calls `resume` itself.
  void starve();
  // Sets the call's place among the calls that wait for slots. To be called before start(). A slow
  // reader gets only the last place.
  void queue(const Queued& queued);
  void start(Started started);
  // Precondition: room() > 0.
  void push(int sample, const Emitted& emitted, TimePoint now);
  void finish(const Finished& finished);
  // Ends the stream. Earlier events can still be taken. Only the first call has an effect.
  void end(Status status);
  // Wakes the reader if a value has waited for max_delay.
  void flush(TimePoint now);
  // Whether the reader has called cancel(). It will take nothing more.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // The samples that the reader has stopped since the last call.
  std::vector<int> take_stopped();

  // --- The reader's side ---

  // Clears `group`, and moves all events that are due to it. False: nothing is due, and `wake` will
  // be called once something is. Nothing follows a group with `end`. A reader that takes only when
  // it is woken, and then until take() returns false, is not woken after the end.
  bool take(StreamGroup& group);
  // Tells the scheduler that the reader takes nothing more. The slot becomes free after the
  // launches in flight.
  void cancel();
  // Tells the scheduler to finish a sample, as at a stop sequence. Values in flight still arrive.
  void stop(int sample);

 private:
  bool due() const;  // with mutex_ held
  void wake_if_due();

  const Delivery delivery_;
  const int room_;
  const int top_per_value_;
  const std::function<void()> wake_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> has_stopped_{false};  // stopped_ is not empty

  mutable std::mutex mutex_;
  std::function<void()> resume_;
  std::optional<Queued> queued_;
  std::optional<Started> started_;
  std::vector<StreamValue> values_;  // reserved: room_
  std::vector<TopLogProb> top_;      // reserved: room_ * top_per_value_
  std::vector<Finished> finished_;
  std::vector<int> stopped_;
  std::optional<Status> end_;
  bool ended_ = false;        // end() has been called
  bool starved_ = false;      // the scheduler waits for room
  TimePoint oldest_{};        // when values_.front() was pushed
  bool delayed_ = false;      // the oldest value has waited long enough
  bool sent_first_ = false;   // a group with values has been taken
  bool reader_waits_ = true;  // take() returned false; the next due event calls wake_
};

}  // namespace runnel
