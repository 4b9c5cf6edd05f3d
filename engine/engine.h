// An engine serves one model. Every function may be called from any thread, and none blocks. Where
// memory gives out for what a call brings, generate() and score() throw std::bad_alloc; the
// scheduler's thread allocates none of it. A callback comes on the scheduler's thread, or before
// the function that was given it returns, and must not block either.
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
  // Takes the model. With a virtual `clock`, or with `threaded` false, no thread is started and
  // turn() must be called; `clock` outlives the engine.
  Engine(std::unique_ptr<Model> model, const EngineOptions& options, const Clock& clock,
         bool threaded = true);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Ends every call that still runs with UNAVAILABLE, then joins the thread.
  ~Engine();

  const Spec& spec() const;
  const std::string& numerics() const;
  DeviceKind device() const;
  // Whether the bits of a sequence depend on the calls that run at the same time, so that nobody
  // can compute them again.
  bool batch_changes_bits() const;
  int64_t state_bytes() const;  // per session
  // Of them, for each position of a sequence; 0: a state does not grow.
  int64_t position_bytes() const;
  // Beside the states, for what sessions can go back to; 0 where they cannot.
  int64_t rewind_bytes() const;
  const StateLayout& layout() const;
  EngineStats stats() const;
  // States that the caller may hold at once, stored ones included: all of them, or a share.
  int64_t most_states(const Caller& caller) const;
  const EngineMetrics& metrics() const;

  // The room, in values, that a stream for so many samples must have.
  int stream_room(int samples) const;

  // Validates a generation and hands it to the scheduler; its events come through `stream`, which
  // has stream_room(). Not OK: refused at once, and nothing will come: INVALID_ARGUMENT (names the
  // field and its limit), OUT_OF_RANGE, RESOURCE_EXHAUSTED (mailbox full; pool full, and the call
  // does not wait), UNAVAILABLE (draining). Later refusals (NOT_FOUND, ABORTED, RESOURCE_EXHAUSTED
  // for a full pool, OUT_OF_RANGE) come as the stream's end.
  Status generate(GenerateRequest request, std::shared_ptr<TokenStream> stream);

  // Starts a Score call. With `begin` a sequence at its start comes after the spec's first value.
  // With `keep` the session that it starts from takes the values in; INVALID_ARGUMENT without one.
  // Else it is not changed, and the first message may wait for a slot for `max_queue_time`.
  // `top_log_probs` of the most likely values are found in the place of each value;
  // INVALID_ARGUMENT as for a generation.
  Result<std::shared_ptr<ScoreCall>> start_score(const Caller& caller, const Origin& origin,
                                                 bool begin = false, bool keep = false,
                                                 Duration max_queue_time = Duration(0),
                                                 int top_log_probs = 0);
  // Gives it the values of the next message; `done` is called exactly once unless the return is not
  // OK. One message at a time: the next may be given once `done` has been called.
  Status score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
               std::function<void(Result<ScoredChunk>)> done);
  // Ends the call: frees its slot within one step. A pending `done` gets CANCELLED, and so does
  // that of a message given at the same time.
  void end_score(const std::shared_ptr<ScoreCall>& call);

  // Sessions. An empty id lets the engine choose one. `done` is called exactly once, also with a
  // refusal.
  void create_session(const Caller& caller, std::string id,
                      const std::function<void(Result<SessionInfo>)>& done);
  // `admitted`: for a call that the engine has admitted, which a full mailbox does not end.
  void get_session(SessionKey key, const std::function<void(Result<SessionInfo>)>& done,
                   bool admitted = false);
  // The same for a call of a store that is about to change the session: from here on the session is
  // not given up.
  void hold_session(SessionKey key, const std::function<void(Result<SessionInfo>)>& done);
  // The session is saved in a store as it is at `position`. While it rests, it is given up as soon
  // as another session needs its slot. Nothing happens if it is not there, at rest.
  void mark_saved(SessionKey key, int64_t position);
  // Sessions of an owner with ids after `after`, at most `count`.
  void list_sessions(std::string owner, std::string after, int count,
                     const std::function<void(Result<SessionPage>)>& done);
  // Ends a session; a call that runs on it ends with ABORTED.
  void delete_session(SessionKey key, const std::function<void(Status)>& done);

  // The state of a resting session to new ones, whose ids are distinct or empty (the engine
  // chooses); at least one, and at most as many as samples. The session is as it was, and busy
  // until `done`, which is called exactly once, also with a refusal: NOT_FOUND, ABORTED (busy),
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED, INVALID_ARGUMENT, UNAVAILABLE.
  void fork_session(const Caller& caller, const std::string& parent,
                    std::vector<std::string> children, const MoveDone& done);
  // The state of a resting session to `image`, which is filled once `done` comes without a refusal;
  // its sessions are none. Also while the engine drains. `admitted`: as for get_session(). Throws
  // std::bad_alloc.
  void export_session(SessionKey key, std::shared_ptr<StateImage> image, const MoveDone& done,
                      bool admitted = false);
  // The same in the background: the session stays at rest, and a call that begins on it ends the
  // copy with CANCELLED. `image` has the bytes of a state already.
  void copy_at_rest(SessionKey key, std::shared_ptr<StateImage> image, const MoveDone& done);
  // A new session with a state that check_state() has let in; an empty id lets the engine choose.
  // `image` does not change until `done`.
  void import_session(const Caller& caller, std::string id, std::shared_ptr<StateImage> image,
                      const MoveDone& done);

  // Moves a resting session back to an earlier position, as if it had stopped there. `done` gets
  // the session as it is afterwards. NOT_FOUND, ABORTED (busy), FAILED_PRECONDITION
  // (options.rewind_values is 0), OUT_OF_RANGE (ahead, or too old: names the oldest),
  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE.
  void rewind_session(const Caller& caller, const std::string& id, int64_t position,
                      const MoveDone& done);

  // A stored state that sequences may start from, as import_session() takes it. ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED.
  void add_state(std::string name, std::shared_ptr<StateImage> image, const MoveDone& done);

  // Wakes the scheduler for another turn. Streams do so by themselves.
  void nudge();

  // UNAVAILABLE, with the reason, once the device has failed: every call has ended with this
  // status, and new ones are refused with it. OK before.
  Status failure() const;

  // From here on new calls, and calls that wait for slots, are refused with UNAVAILABLE; running
  // calls continue.
  void drain();
  // Generations and Score calls that have not ended yet, including calls that wait for slots.
  int active_calls() const;
  // Ends every running call with `status`, within one step.
  void end_all(Status status);

  // One turn of the scheduler, for tests without a thread: true when it did something.
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
