// The scheduler: the one thread that owns sessions, slots and the model. In each turn it
// - ends the calls that are finished, cancelled or out of time,
// - runs commands from its mailbox; their work is bounded, so that they do not delay the steps,
// - moves states,
// - admits calls that have waited for slots,
// - runs a step. It never waits for a fuller batch.
//
// Five classes do the work, and each owns its fields: Sessions, WaitingRoom, Steps, Admission and
// Moves. All use Sessions. Admission and Moves also use WaitingRoom and Steps, which do not depend
// on each other. The scheduler passes two notices on: WaitingRoom tells Admission that a call may
// start, and Steps reports a failed device, which ends all calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mailbox.h"
#include "engine/admission.h"
#include "engine/metrics.h"
#include "engine/moves.h"
#include "engine/options.h"
#include "engine/sessions.h"
#include "engine/steps.h"
#include "engine/turn_clock.h"
#include "engine/waiting_room.h"

namespace runnel {

class Scheduler {
 public:
  struct Command {
    std::function<void(Scheduler&)> run;
    int64_t bytes = 0;  // the memory that the command holds while it waits
    int work = 1;       // how long the command takes, in units of an admission
  };

  // All arguments must outlive the object.
  Scheduler(Model& model, const EngineOptions& options, const Clock& clock);

  // --- From any thread ---

  // Puts a command into the mailbox. False if too many commands wait there, or too many bytes.
  [[nodiscard]] bool put(Command command);
  // The same for a call that has been admitted. A full mailbox does not refuse the command: for
  // each slot, at most a few such commands wait.
  [[nodiscard]] bool put_admitted(Command command);
  void nudge() { mailbox_.nudge(); }
  // After this, put() refuses every command.
  void close() { mailbox_.close(); }
  void drain();
  // Why new calls are refused: the device has failed, or the engine drains. OK: not refused.
  Status refusal() const;
  // How the device has failed. OK if it has not.
  Status failure() const { return steps_.failure(); }
  // Ends all calls after a turn has thrown, for example for lack of memory: the turn may have left
  // any of its work undone. To be called on the thread of turns.
  void fail(const Status& reason) { steps_.fail(reason); }
  void end_all(Status status);
  // Claims the slots that a call will lease. So the call is refused at once if the pool is full, or
  // if the free slots are kept for calls that wait. `field` is the field of the request that asks
  // for the slots.
  Status claim(int slots, std::string_view field) { return waiting_room_.claim(slots, field); }
  void give_up(int slots) { sessions_.give_up(slots); }
  // RESOURCE_EXHAUSTED if the caller's account would have to wait for more than a second for its
  // next value, because of its quota of values a second.
  Status check_pace(const Caller& caller) const;
  EngineStats stats() const;
  const EngineMetrics& metrics() const { return metrics_; }
  TimePoint now() const { return clock_.now(); }
  int64_t rewind_bytes() const { return sessions_.rewinds().bytes(); }
  int active_calls() const { return active_calls_.load(std::memory_order_acquire); }

  // --- The scheduler's thread ---

  // Runs one turn. True if it did something; otherwise call wait().
  bool turn();
  // Waits for a command or a nudge, at most until timeouts must be checked again.
  void wait();

  // Commands. While refusal() is not OK, it refuses new calls and new sessions. Export works until
  // the device fails, so that sessions can be moved away from a server that drains.
  void admit(GenerateRequest request, const RequestDigest& digest,
             std::shared_ptr<TokenStream> stream);
  // As Admission::feed().
  void feed_score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
                  ScoredChunk answers, std::function<void(Result<ScoredChunk>)> done);
  Result<SessionInfo> create_session(SessionKey key, const Caller& caller);
  Result<SessionInfo> get_session(const SessionKey& key);
  // As the functions of Admission.
  void hold_session(const SessionKey& key) { admission_.hold_session(key); }
  void mark_saved(const SessionKey& key, int64_t position) { admission_.mark_saved(key, position); }
  SessionPage list_sessions(const std::string& owner, const std::string& after, int count) const;
  Status delete_session(const SessionKey& key);
  // As the functions of Moves.
  void fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                    const Caller& caller, MoveDone done);
  void export_session(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  void copy_at_rest(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  void import_session(const std::string& id, std::shared_ptr<StateImage> image,
                      const Caller& caller, MoveDone done);
  void add_state(const std::string& name, std::shared_ptr<StateImage> image, MoveDone done);
  void rewind_session(const SessionKey& key, int64_t position, const Caller& caller, MoveDone done);

 private:
  bool run_commands(size_t waiting);
  void end_calls();
  void end_every_call(const Status& status);
  void publish();

  const Clock& clock_;
  Mailbox<Command> mailbox_;
  std::atomic<bool> draining_{false};
  std::mutex end_all_mutex_;
  std::optional<Status> end_all_;  // only with end_all_mutex_ held

  EngineMetrics metrics_;
  TurnClock time_;
  Sessions sessions_;
  WaitingRoom waiting_room_;
  Steps steps_;
  Admission admission_;
  Moves moves_;

  std::atomic<int> active_calls_{0};
  std::atomic<int64_t> sessions_free_{0}, waiting_{0};
};

}  // namespace runnel
