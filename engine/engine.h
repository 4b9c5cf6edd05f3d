// An engine serves one model. Every function may be called from any thread, and none blocks. If
// there is no memory for a request, generate() and score() throw std::bad_alloc. The scheduler's
// thread allocates no memory for requests. A callback runs on the scheduler's thread, or before the
// function that it was given to returns. It must not block.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/state_move.h"
#include "engine/token_stream.h"
#include "models/model.h"

namespace runnel {

class Scheduler;
struct EngineMetrics;

// One call to Score, made by Engine::start_score() and fed message by message. Opaque to its owner.
class ScoreCall;

class Engine {
 public:
  // With a virtual `clock`, or with `threaded` false, the engine starts no thread, and turn() must
  // be called. `clock` must outlive the engine.
  Engine(std::unique_ptr<Model> model, const EngineOptions& options, const Clock& clock,
         bool threaded = true);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Ends every call that still runs with UNAVAILABLE, then joins the thread.
  ~Engine();

  const Spec& spec() const;
  const std::string& numerics() const;
  DeviceKind device() const;
  // Whether the bits of a sequence depend on the calls that run at the same time. If so, its values
  // cannot be reproduced.
  bool batch_changes_bits() const;
  int64_t state_bytes() const;  // per session
  // The part of state_bytes() for each position of a sequence. 0: the state does not grow.
  int64_t position_bytes() const;
  // Memory in addition to the states, for rewinding sessions. 0: sessions cannot be rewound.
  int64_t rewind_bytes() const;
  const StateLayout& layout() const;
  EngineStats stats() const;
  // The maximum number of states that the caller may hold: the quota, but at most all slots
  // (including slots of stored states).
  int64_t most_states(const Caller& caller) const;
  const EngineMetrics& metrics() const;

  // The room, in values, that a stream for this number of samples must have.
  int stream_room(int samples) const;

  // Validates a generation and hands it to the scheduler. Its events go to `stream`, whose room is
  // stream_room(). If the result is not OK, the call is refused and `stream` gets nothing:
  // INVALID_ARGUMENT (names the field and its limit), OUT_OF_RANGE, RESOURCE_EXHAUSTED (the mailbox
  // is full, or the pool is full and the call does not wait), UNAVAILABLE (draining). Later
  // refusals (NOT_FOUND, ABORTED, RESOURCE_EXHAUSTED for a full pool, OUT_OF_RANGE) end the stream.
  Status generate(GenerateRequest request, std::shared_ptr<TokenStream> stream);

  // Starts a Score call.
  // - `begin`: if the sequence is empty, the spec's first value comes before the values.
  // - `keep`: the session of `origin` consumes the values; INVALID_ARGUMENT without a session. If
  //   false, the session does not change, and the first message may wait for a slot for
  //   `max_queue_time`.
  // - `top_log_probs`: how many of the most likely values are returned at each position;
  //   INVALID_ARGUMENT as for a generation.
  // - `accepted`: called once the first message has a slot or waits for one. May be empty.
  Result<std::shared_ptr<ScoreCall>> start_score(const Caller& caller, const Origin& origin,
                                                 bool begin = false, bool keep = false,
                                                 Duration max_queue_time = Duration(0),
                                                 int top_log_probs = 0,
                                                 std::function<void()> accepted = {});
  // Gives the call the values of the next message. If the result is OK, `done` is called exactly
  // once. The next message may be given after that.
  Status score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
               std::function<void(Result<ScoredChunk>)> done);
  // Ends the call, and frees its slot within one step. A pending `done` gets CANCELLED, as does the
  // `done` of a message that is given at the same time.
  void end_score(const std::shared_ptr<ScoreCall>& call);

  // Sessions. If an id is empty, the engine chooses one. `done` is called exactly once, also when
  // the engine refuses.
  void create_session(const Caller& caller, std::string id,
                      const std::function<void(Result<SessionInfo>)>& done);
  // `admitted`: the engine has admitted the call, so a full mailbox does not refuse this.
  void get_session(SessionKey key, const std::function<void(Result<SessionInfo>)>& done,
                   bool admitted = false);
  // As get_session(), for a call of a store that is about to change the session. It keeps the
  // session from being evicted.
  void hold_session(SessionKey key, const std::function<void(Result<SessionInfo>)>& done);
  // Records that a store has saved the session at `position`. While the session is at rest, it may
  // be evicted as soon as another session needs its slot. Does nothing unless the session is at
  // rest at this position.
  void mark_saved(SessionKey key, int64_t position);
  // The sessions of an owner whose ids are greater than `after`; at most `count`.
  void list_sessions(std::string owner, std::string after, int count,
                     const std::function<void(Result<SessionPage>)>& done);
  // Ends a session. A call that runs on it ends with ABORTED.
  void delete_session(SessionKey key, const std::function<void(Status)>& done);

  // Copies the state of a session at rest to new sessions. Their number is from 1 to the maximum
  // number of samples of a call. Their ids are distinct or empty; for an empty id, the engine
  // chooses one. The session does not change, and is busy until `done`, which is called exactly
  // once, also for a refusal: NOT_FOUND, ABORTED (busy), ALREADY_EXISTS, RESOURCE_EXHAUSTED,
  // INVALID_ARGUMENT, UNAVAILABLE.
  void fork_session(const Caller& caller, const std::string& parent,
                    std::vector<std::string> children, const MoveDone& done);
  // Copies the state of a session at rest to `image`, which is complete when `done` is called with
  // OK. `done` then gets an empty list. Works while the engine drains, too. `admitted`: as for
  // get_session(). Throws std::bad_alloc.
  void export_session(SessionKey key, std::shared_ptr<StateImage> image, const MoveDone& done,
                      bool admitted = false);
  // The same in the background. The session stays at rest. If a call begins on it, the copy ends
  // with CANCELLED. `image` already has memory for a state.
  void copy_at_rest(SessionKey key, std::shared_ptr<StateImage> image, const MoveDone& done);
  // Makes a new session with a state that check_state() has accepted. If the id is empty, the
  // engine chooses one. `image` must not change before `done`.
  void import_session(const Caller& caller, std::string id, std::shared_ptr<StateImage> image,
                      const MoveDone& done);

  // Moves a session at rest back to an earlier position, as if it had stopped there. `done` gets
  // the session as it is afterwards. NOT_FOUND, ABORTED (busy), FAILED_PRECONDITION
  // (options.rewind_values is 0), OUT_OF_RANGE (the position is ahead, or older than the oldest
  // one, which the message names), INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE.
  void rewind_session(const Caller& caller, const std::string& id, int64_t position,
                      const MoveDone& done);

  // Adds a stored state, from which sequences may start. `image`: as for import_session().
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  void add_state(std::string name, std::shared_ptr<StateImage> image, const MoveDone& done);

  // Wakes the scheduler for another turn. Streams do so by themselves.
  void nudge();

  // OK until the device fails. Then UNAVAILABLE with the reason: every running call ends with this
  // status, and every new call is refused with it.
  Status failure() const;

  // Refuses new calls, and calls that wait for slots, with UNAVAILABLE. Running calls continue.
  void drain();
  // The number of generations and Score calls that have not ended, including calls that wait for
  // slots.
  int active_calls() const;
  // Ends every running call with `status`, within one step.
  void end_all(Status status);

  // Runs one turn of the scheduler, for tests without a thread. True if it did something.
  bool turn();

 private:
  void run();

  std::unique_ptr<Model> model_;
  const EngineOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace runnel
