// One streaming call. All doors use this class. A door decodes messages, encodes the events that
// the call writes to its sink, and sends and receives bytes. This class and its subclasses do the
// rest: they decide which thread has the turn, apply time limits, cancel the call, enter it in the
// list of live calls, and report it at its end.
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

// The door's side of a call. It must exist until Call::leave(). Only one thread at a time writes or
// finishes. These functions must not block.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Tells the client how the call ended. This is the last event.
  virtual void finish(const Status& status) = 0;
  // Abandons the present event, because the client has not taken it for too long. The door must
  // then call Call::written(false) soon, but not from within this function.
  virtual void cut_off() = 0;
};

// The threads of the scheduler, of the writer and of the door use a call. At most one thread has
// the turn. Only this thread takes results from the engine, writes and finishes. Any other thread
// sets a flag, so that the thread with the turn looks again, and continues.
class Call : public LiveCall, public std::enable_shared_from_this<Call> {
 public:
  // --- The door's side ---

  // To be called first, once the door can finish the call. Adds the call to the live calls, which
  // other threads may end. If there is no memory for that, the call ends.
  void enter();
  // To be called next. Checks the caller, and counts the call against the caller's quota.
  // UNAUTHENTICATED; RESOURCE_EXHAUSTED, which names the quota that is used up.
  Status admit();
  // Ends the call at once, because of the client's input.
  void refuse(const Status& status) { fail(status); }
  // To be called when the event that the sink got has been sent, or with false if it cannot be
  // sent.
  void written(bool ok);
  // To be called when the client has disconnected or cancelled.
  void cancel() { fail({Code::kCancelled, "the call was cancelled"}); }
  // To be called last. The call does not use the sink after this.
  void leave() { state_.calls.leave(shared_from_this()); }

  // Only after admit().
  const Caller& caller() const { return *start_.caller; }
  // ServedModels::find() for the caller. Does set_model().
  Result<std::shared_ptr<const ServedModel>> find_model(const std::string& name);
  // From here on, metrics and the log count the call for this model, even if it is refused.
  void set_model(std::shared_ptr<const ServedModel> model);

  // --- LiveCall ---

  void end(const Status& status) override;
  void tend(TimePoint now) override;

 protected:
  // The result of a turn:
  // - Waiting: there is nothing to do before resume() or wake().
  // - Writing: the sink has an event.
  // - Status: the call ends with this status.
  struct Waiting {};
  struct Writing {};
  using Step = std::variant<Waiting, Writing, Status>;

  // `state` must exist until leave() has returned.
  Call(ServerContext& state, CallStart start, CallSink& sink);

  // Does the work that is due, with the turn. It calls begin_write() before it gives an event to
  // the sink, and uses nothing of the call after that, because another thread may call written().
  // If there is not enough memory, it must throw before it gives anything to the sink, and the call
  // ends.
  virtual Step next() = 0;

  void begin_write();
  // Limits the total time that the call waits for the client to send. To be called before the first
  // begin_read().
  void bound_reads(Duration most) { most_read_ = most; }
  // The call waits for the client to send something. The time limit of Call applies until
  // end_read().
  void begin_read();
  // The client has sent something. False: the call has ended while it waited.
  bool end_read();

  // Sets a function that ends the call in the engine. It is called once, from any thread: when the
  // call ends, by release(), or at once if the call has already ended.
  void on_end(std::function<void()> release);
  void release();
  std::shared_ptr<const ServedModel> model() const;  // null before set_model()

  // To be called when work may be due. resume() does it now, unless another thread has the turn.
  // wake() leaves it to the writer's thread, so that the scheduler's thread is not delayed.
  void resume();
  void wake();
  // A function that calls wake(), and may outlive the call.
  std::function<void()> waker();

  // The status that end() was called with. None: end() was not called.
  std::optional<Status> ending() const;

  // These three are for the report at the end.
  // Adds to the number of values that the client has sent.
  void note_given(int64_t values);
  // The engine has admitted the call, which waited for this time. To be called with the turn.
  void note_admitted(Duration queued) { progress_.queued = queued; }
  // An event with this number of sampled values is about to be written. To be called with the turn.
  void note_values(int64_t sampled);

  ServerContext& state_;
  const CallStart start_;
  mutable std::mutex mutex_;  // for members that several threads use, here and in subclasses

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

  CallProgress progress_;  // used with the turn; `given` is set at the end

  // Only used with mutex_ held.
  int64_t given_ = 0;  // values that the client has sent
  std::shared_ptr<const ServedModel> model_;
  CallQuota quota_;
  bool turn_taken_ = false;
  bool word_left_ = false;
  std::optional<Status> over_;    // the call ends at once, or has ended, with this status
  std::optional<Status> ending_;  // the call ends with this status after its work in progress
  std::function<void()> release_;
  std::optional<TimePoint> writing_since_;  // since when the sink has had an event
  std::optional<TimePoint> reading_since_;  // since when the call has waited for the client
  Duration read_{};  // how long the call waited for the client before reading_since_
  Duration most_read_ = Duration::max();
};

}  // namespace runnel
