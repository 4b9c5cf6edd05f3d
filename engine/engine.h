// An engine serves one model: {model, pool, scheduler}. Every function may be called from any
// thread, none blocks, and callbacks come on the scheduler's thread, or before the function that
// was given them returns, and must not block either.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/token_stream.h"
#include "models/model.h"

namespace runnel {

class Scheduler;

struct EngineOptions {
  int64_t batch_rows = limits::kBatchRows.default_value;
  int64_t batch_values = limits::kBatchValues.default_value;
  int64_t mailbox = limits::kMailbox.default_value;
  int64_t stream_room = limits::kStreamRoom.default_value;
  int64_t steps_per_launch = limits::kStepsPerLaunch.default_value;
  int64_t samples = limits::kSamples.default_value;
  int64_t prompt_values = limits::kPromptValues.default_value;
  int64_t max_values = limits::kMaxValues.default_value;
  Duration stall_timeout = std::chrono::milliseconds(limits::kStallTimeoutMs.default_value);
  Duration idle_timeout = std::chrono::milliseconds(limits::kIdleTimeoutMs.default_value);
};

// One call to Score: made by Engine::start_score(), fed chunk after chunk. Opaque to its owner but
// for cancel(); the scheduler drops it, and its slot, once it is cancelled or finished.
class ScoreCall;

// What a chunk of a Score call came to.
struct ScoredChunk {
  int64_t position = 0;  // of log_probs[0]
  std::vector<float>
      log_probs;  // natural log; one per value, but for a first value that is not predicted
};

struct EngineStats {
  int64_t sessions = 0;       // slots there are
  int64_t sessions_free = 0;  // slots not leased
  int64_t steps = 0;          // taken since the start
  int64_t values_sampled = 0;
  int64_t values_consumed = 0;  // prompts and scored values
};

// What a call that comes while an engine drains is refused with: UNAVAILABLE.
Status draining_status();

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
  int64_t state_bytes() const;  // per session
  const EngineOptions& options() const;
  EngineStats stats() const;

  // The room that a stream for so many samples must have.
  int stream_room(int samples) const;

  // Validates and hands over a generation, whose events come through `stream` (of stream_room()).
  // Not OK: refused at once, nothing will come. INVALID_ARGUMENT (names the field and its limit),
  // OUT_OF_RANGE, RESOURCE_EXHAUSTED (mailbox or pool full), UNAVAILABLE (draining). Later refusals
  // (NOT_FOUND, ABORTED, RESOURCE_EXHAUSTED for a full pool, OUT_OF_RANGE) come as the stream's
  // end.
  Status generate(GenerateRequest request, std::shared_ptr<TokenStream> stream);

  // Starts a Score call from a session (which is not changed) or, without one, a fresh sequence.
  Result<std::shared_ptr<ScoreCall>> start_score(const std::string& owner,
                                                 const std::optional<std::string>& session);
  // Gives it the next chunk; `done` is called exactly once unless the return is not OK. One chunk
  // at a time: the next may be given once `done` has been called.
  Status score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
               std::function<void(Result<ScoredChunk>)> done);
  // No more chunks: frees its slot within one step. A pending `done` gets CANCELLED, and so does
  // that of a chunk given at the same time.
  void end_score(const std::shared_ptr<ScoreCall>& call);

  // Sessions. An empty id lets the engine choose one. `done` is called exactly once, also when
  // refused.
  void create_session(SessionKey key, std::function<void(Result<SessionInfo>)> done);
  void get_session(SessionKey key, std::function<void(Result<SessionInfo>)> done);
  // Sessions of an owner with ids after `after`, at most `count`.
  void list_sessions(std::string owner, std::string after, int count,
                     std::function<void(Result<SessionPage>)> done);
  // Ends a session; a call that runs on it ends with ABORTED.
  void delete_session(SessionKey key, std::function<void(Status)> done);

  // Makes the scheduler look again at once. Streams do so by themselves.
  void nudge();

  // From here every new call is refused with UNAVAILABLE; those that run go on.
  void drain();
  // Calls that have not ended yet: generations and Score calls.
  int active_calls() const;
  // Ends every call that runs with `status`, within one step.
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
