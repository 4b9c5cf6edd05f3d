// A bounded queue of the values of one generation, from the scheduler to the writer for the client.
//
// The scheduler never blocks here: it asks for room() before it steps a row, and leaves the row out
// of the batch when there is none. The reader takes groups of values: the first value at once, then
// groups as large as Delivery says or as old as max_delay, and the rest when a sample finishes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/request.h"
#include "models/model.h"

namespace runnel {

// One value on its way out. Its top log-probabilities are beside it in StreamGroup.
struct StreamValue {
  int32_t sample = 0;
  int32_t value = 0;
  int64_t position = 0;
  float log_prob = 0.0F;
  int32_t top_count = 0;
};

// What take() hands over, in the order in which it must be sent: queued, started, values,
// finished, end.
struct StreamGroup {
  std::optional<Queued> queued;  // the last since the group before
  std::optional<Started> started;
  std::vector<StreamValue> values;
  std::vector<TopLogProb> top;  // of all values, in order, top_count each
  std::vector<Finished> finished;
  std::optional<Status> end;  // nothing follows; OK when every sample finished

  void clear();
  bool empty() const;
};

class TokenStream {
 public:
  // `room`: values it holds at most; at least twice what one launch can push. `top_log_probs`: how
  // many may come with each value. `wake` is called without a lock held, from the scheduler's
  // thread, when take() has something after it had nothing; it must not block and must not call
  // take() for another stream.
  TokenStream(Delivery delivery, int room, int top_log_probs, std::function<void()> wake);
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  // Bytes of the values that such a stream can hold.
  static int64_t bytes(int room, int top_log_probs);

  // --- The scheduler's side ---

  // What is called when the reader has made room that the scheduler waited for, or has gone: from
  // the reader's thread, or within starve(). Set once, before the scheduler sees the stream; must
  // not block nor call the stream. Never called once end() has returned.
  void attach(std::function<void()> resume);
  // Values that can be pushed before a reader takes any.
  int room();
  // The scheduler has left the stream's rows out for want of room: what there is goes at once, and
  // the next take() calls `resume`. Called now where all has been taken meanwhile.
  void starve();
  // Where the call stands among those that wait, before start(). A late reader gets the last alone.
  void queue(const Queued& queued);
  void start(Started started);
  // Precondition: room() > 0.
  void push(int sample, const Emitted& emitted, TimePoint now);
  void finish(const Finished& finished);
  // Ends the stream; what was pushed before can still be taken. Only the first call counts.
  void end(Status status);
  // Wakes the reader if a value has waited for max_delay.
  void flush(TimePoint now);
  // True once the reader has gone: nothing more will be taken.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // The samples of which the reader has had enough since the last call.
  std::vector<int> take_stopped();

  // --- The reader's side ---

  // Moves all that is due into `group` (cleared first). False: nothing is due; wake() will be
  // called once something is. After a group with `end` nothing follows. Who takes only when woken,
  // and then until it is false, is not woken after the end.
  bool take(StreamGroup& group);
  // Tells the scheduler that the reader has gone. The slot is free after the launches in flight.
  void cancel();
  // Tells the scheduler that a sample may finish, as at a stop. Values in flight still come.
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
  TimePoint oldest_{};        // when values_.front() came
  bool delayed_ = false;      // the oldest has waited long enough
  bool sent_first_ = false;   // a group with values has been taken
  bool reader_waits_ = true;  // take() had nothing; the next due event wakes
};

}  // namespace runnel
