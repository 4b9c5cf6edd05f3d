// Admits calls. It finds the sessions and slots that a call needs and the position where it starts.
// Then it starts the call, has it wait for slots, or refuses it with a reason. It also tells a
// retry from a new call.
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
  // All arguments must outlive the object.
  Admission(Model& model, const EngineOptions& options, Sessions& sessions,
            WaitingRoom& waiting_room, Steps& steps, const TurnClock& time, EngineMetrics& metrics);

  // Admits a call, has it wait for slots, or ends `stream` with the reason for a refusal.
  void admit(GenerateRequest request, const RequestDigest& digest,
             std::shared_ptr<TokenStream> stream);
  // Gives a Score call its next message. The first message admits the call. `answers` is empty,
  // with memory reserved for one more answer than there are values. If the call begins with the
  // model's first value, `values` also has memory for one more value.
  void feed(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
            ScoredChunk answers, std::function<void(Result<ScoredChunk>)> done);
  // Admits a call that has waited for slots, when its turn has come, or ends it with the reason for
  // a refusal. False: the call must keep waiting, because a call to another model has just taken
  // the state that the account's quota had left. Nothing has changed then, except that spare
  // sessions of the account may have ended.
  bool go_on(QueuedCall& call);

  // ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  Result<SessionInfo> create_session(SessionKey key, const Caller& caller);
  // Keeps the session from being evicted until the next mark_saved(), because a call is about to
  // change it. Its idle time begins again.
  void hold_session(const SessionKey& key);
  // Records that a store has saved the session at `position`. Does nothing unless the session is at
  // rest at this position.
  void mark_saved(const SessionKey& key, int64_t position);
  // Ends a session and the call that runs on it. NOT_FOUND; ABORTED while its state moves.
  Status delete_session(const SessionKey& key);

 private:
  bool begin(std::unique_ptr<Generation>& generation);
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

  bool begin(const std::shared_ptr<ScoreCall>& call, bool has_waited);
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
