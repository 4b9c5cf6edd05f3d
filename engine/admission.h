// How calls come in: it finds what each needs (sessions, slots, a place in its sequence), says why
// a call is refused, lets it wait for slots, or hands it over to the steps. It also tells a retry
// from a new call.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/metrics.h"
#include "engine/options.h"
#include "engine/sessions.h"
#include "engine/steps.h"
#include "engine/turn_clock.h"
#include "engine/waiting_room.h"
#include "models/spec.h"

namespace runnel {

class Admission {
 public:
  // All of them outlive it.
  Admission(Model& model, const EngineOptions& options, Sessions& sessions,
            WaitingRoom& waiting_room, Steps& steps, const TurnClock& time, EngineMetrics& metrics);

  // Admits a call, lets it wait for slots, or ends `stream` with the reason.
  void admit(GenerateRequest request, const RequestDigest& digest,
             std::shared_ptr<TokenStream> stream);
  // Gives a Score call its next message; the first admits it. `answers` is empty and has room for
  // one more than `values`, and so have they where the call begins with a first value.
  void feed(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
            ScoredChunk answers, std::function<void(Result<ScoredChunk>)> done);
  // Admits a call that has waited, and has its turn.
  void go_on(QueuedCall call);

  // ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  Result<SessionInfo> create_session(SessionKey key, const Caller& caller);
  // The session is not given up until the next mark_saved(): a call is about to change it.
  void hold_session(const SessionKey& key);
  // The session is saved as it is at `position`. Nothing happens if it is not there at rest.
  void mark_saved(const SessionKey& key, int64_t position);
  // Ends a session and the call on it. NOT_FOUND; ABORTED while its state moves.
  Status delete_session(const SessionKey& key);

 private:
  void begin(std::unique_ptr<Generation> generation);
  Status try_admit(Generation& generation);
  TurnPlace place_of(const GenerateRequest& request, const Session* source) const;
  Status check_start(const GenerateRequest& request, TurnPlace place, int64_t position) const;
  Result<Session*> resolve(const Origin& origin, const Caller& caller);
  Result<Session*> open_samples(Generation& generation, Session* source);
  Session& open_sample(const GenerateRequest& request);
  void start_from(Session& source, Session& session);
  bool reuses_prefix(const GenerateRequest& request) const;
  std::optional<PrefixKey> find_prefix(const GenerateRequest& request) const;
  void start_afresh(Generation& generation, const std::optional<PrefixKey>& prefix);
  void plan_prefix(Generation& generation);
  bool begins_prompt(const GenerateRequest& request, int64_t position) const;
  void complete_prompt(GenerateRequest& request, int64_t position) const;
  void start_record(Generation& generation, int64_t position, TurnPlace place);
  void start_stream(Generation& generation, const Session& first, int64_t position,
                    TurnPlace place);
  Duration note_queued(TimePoint came);

  bool find_retried(Generation& generation);
  Status try_resume(Generation& generation);
  Status take_stored(const Generation& generation, Session& session) const;
  void resume(Generation& generation, Session& session);

  void begin(const std::shared_ptr<ScoreCall>& call, bool has_waited);
  Result<Session*> open_scored(const ScoreCall& call, bool has_waited);
  void score(ScoreCall& call);

  Model& model_;
  const Spec& spec_;
  const std::string& numerics_;
  const EngineOptions& options_;
  Sessions& sessions_;
  WaitingRoom& waiting_room_;
  Steps& steps_;
  const TurnClock& time_;
  EngineMetrics& metrics_;
  const int64_t chunk_;  // ModelLimits::chunk
};

}  // namespace runnel
