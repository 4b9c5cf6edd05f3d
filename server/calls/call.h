// One streaming call, whichever door it came through. The door decodes what arrives, encodes the
// events that the call writes to its sink, and moves bytes; all else is here and in the subclasses:
// whose turn it is, time limits, cancellation, the entry among the live calls, what is told of it
// at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/status.h"
#include "engine/caller.h"
#include "server/calls/call_report.h"
#include "server/host/call_quota.h"
#include "server/host/live_calls.h"
#include "server/host/served_models.h"
#include "server/host/server_context.h"

namespace runnel {

// The door's end of a call. It lives until Call::leave(). One thread at a time writes and finishes,
// and neither may block.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Tells the client how the call ended. Nothing follows.
  virtual void finish(const Status& status) = 0;
  // The client has not taken an event for too long: gives the event up, so that
  // Call::written(false) comes soon. Must not call the call.
  virtual void cut_off() = 0;
};

// Threads meet here: the scheduler's, the writer's, the door's. At most one of them at a time has
// the turn, and only it takes from the engine, writes and finishes. Whoever comes meanwhile leaves
// word and continues.
class Call : public LiveCall, public std::enable_shared_from_this<Call> {
 public:
  // --- The door's side ---

  // First of all, once the door has the call and is ready to finish: makes it one of the live ones,
  // which other threads may end. Where memory gives out the call ends.
  void enter();
  // Then: says whether the caller is served, and counts the call against their quota.
  // UNAUTHENTICATED; RESOURCE_EXHAUSTED, with the quota that is used up.
  Status admit();
  // Ends the call at once, because of the client's input.
  void refuse(const Status& status) { fail(status); }
  // The event that the sink was given has gone out; false: it never will.
  void written(bool ok);
  // The client has gone.
  void cancel() { fail({Code::kCancelled, "the call was cancelled"}); }
  // Last: the sink is not used any more.
  void leave() { state_.calls.leave(shared_from_this()); }

  // After admit().
  const Caller& caller() const { return *start_.caller; }

  // --- LiveCall ---

  void end(const Status& status) override;
  void tend(TimePoint now) override;

 protected:
  // What a turn has come to: nothing to do before resume() or wake(); an event is with the sink;
  // the call ends.
  struct Waiting {};
  struct Writing {};
  using Step = std::variant<Waiting, Writing, Status>;

  // `state` outlives all but the call's last moments, after leave().
  Call(ServerContext& state, CallStart start, CallSink& sink);

  // Does what is due, with the turn. Before it gives an event to the sink it calls begin_write(),
  // and after that it touches nothing: written() may come on another thread. Where memory gives out
  // in it the sink has been given nothing, and the call ends.
  virtual Step next() = 0;

  void begin_write();
  // Bounds how long the client may take to send, over the whole call; before the first
  // begin_read().
  void bound_reads(Duration most) { most_read_ = most; }
  // The client is to send something, and has Call's time limit to do so; until it has.
  void begin_read();
  // What the client was to send has come. False: the call has ended meanwhile.
  bool end_read();

  // `release` makes the engine let go of this call. It is called once, from any thread: when the
  // call ends or by release(); at once where the call has ended.
  void on_end(std::function<void()> release);
  void release();
  void set_model(std::shared_ptr<const ServedModel> model);
  std::shared_ptr<const ServedModel> model() const;  // null before set_model()

  // Something may be due. resume() does it now, unless another thread has the turn; wake() leaves
  // it to the writer, because the scheduler's thread must not be held up.
  void resume();
  void wake();
  // wake(), for whoever may outlive the call.
  std::function<void()> waker();

  // What end() has been given, if it has been called.
  std::optional<Status> ending() const;
  // For the report at the end. Values that the client has sent:
  void note_given(int64_t values);
  // The engine has admitted the call, for which it had waited; with the turn.
  void note_admitted(Duration queued) { progress_.queued = queued; }
  // An event with values is about to be written, `sampled` of them sampled; with the turn.
  void note_values(int64_t sampled);

  ServerContext& state_;
  const CallStart start_;
  mutable std::mutex mutex_;  // of what several threads touch, here and in subclasses

 private:
  void fail(const Status& status);
  void stop(const Status& status);
  std::optional<Status> over() const;
  Status check_rights() const;
  bool take_turn();
  bool give_turn_back();
  void pump();
  void finish(const Status& status);
  void end_quota();

  CallSink& sink_;

  CallProgress progress_;  // with the turn, but for what is given

  // With mutex_ held.
  int64_t given_ = 0;  // values that the client has sent
  std::shared_ptr<const ServedModel> model_;
  CallQuota quota_;
  bool turn_taken_ = false;
  bool word_left_ = false;
  std::optional<Status> over_;    // ends at once with this, or has ended
  std::optional<Status> ending_;  // ends with this after what is under way
  std::function<void()> release_;
  std::optional<TimePoint> writing_since_;  // the sink has an event
  std::optional<TimePoint> reading_since_;  // the client is to send something
  Duration read_{};                         // what it took to send all before
  Duration most_read_ = Duration::max();
};

}  // namespace runnel
