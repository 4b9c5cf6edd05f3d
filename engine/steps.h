// The running calls, and the steps that advance them. Each turn gathers the rows that could be
// advanced, plans a batch, submits it as a launch, and hands out the results of launches. Nothing
// is allocated between the plan and the hand-out.
//
// If the model allows several launches at a time, one launch stays in flight while the next one is
// planned and submitted, so that the device need not wait for the host. A row that only samples may
// be in the next launch, too, because the number of values that it still has to sample is known. A
// call that ends earlier waits until its values in flight have arrived.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "engine/feed_pace.h"
#include "engine/launches.h"
#include "engine/metrics.h"
#include "engine/options.h"
#include "engine/planner.h"
#include "engine/sessions.h"
#include "engine/subject.h"
#include "engine/turn_clock.h"
#include "engine/turns.h"
#include "engine/value_gaps.h"

namespace runnel {

class Steps {
 public:
  // All arguments must outlive the object. When the device fails, it calls `on_failure` with the
  // status for all calls. `on_failure` must call end_all().
  Steps(Model& model, const EngineOptions& options, Sessions& sessions, TurnClock& time,
        EngineMetrics& metrics, std::function<void(const Status&)> on_failure);

  // OK until the device has failed. It never recovers. Any thread may call this.
  Status failure() const;
  // Records that the device has failed, which loses every state, and ends all calls. New calls are
  // refused from then on, so that no step follows.
  void fail(const Status& reason);

  // --- Calls that begin ---

  // Runs a generation. It must already have its sessions, or be resending.
  void start(std::unique_ptr<Generation> generation);
  // Runs a Score call on a session. score() must then be called for each message.
  void start(const std::shared_ptr<ScoreCall>& call, Session& session);
  void score(ScoreCall& call);
  // Has a session at rest consume `values`, at least one. `done` is called once.
  void feed_again(Session& session, std::vector<int32_t> values, const Caller& caller,
                  std::function<void(const Status&)> done);

  // --- Calls that end ---

  // Ends the call that fills `record`. The call no longer uses the record.
  void end_try(const std::shared_ptr<CallRecord>& record, const Status& status);
  // Ends the call that runs on the session.
  void end_on(const Session& session, const Status& status);
  // Ends the calls that are cancelled, stalled or out of time, and finishes stopped samples.
  void end_due();
  void end_all(const Status& status);

  // --- Once a turn ---

  // Runs a step if there is a row for it. True if it submitted a launch, or one was in flight.
  bool step();
  // Sends the groups of values that have waited for Delivery::max_delay. Removes the calls that
  // have ended.
  void finish_turn();

  // The number of calls that have not ended.
  int active_calls() const;
  // Whether the last plan left out an account because of its quota.
  bool paces() const { return turns_.paces(); }

 private:
  // From prompt to samples.
  void begin_feeding(Generation& generation);
  void start_sampling(Generation& generation);
  void start_sample(Generation& generation, int index);
  void begin(Feed& feed);
  void keep_prefix(Generation& generation);

  // Candidates.
  void gather();
  void gather_samples(Generation& generation);
  void gather_fed(const Subject& subject, Want want, TimePoint since);
  void resend_recorded(Generation& generation);
  void note_stall(Generation& generation);
  void note_served();

  // The step.
  void submit();
  bool may_stay_on_its_way() const;
  void settle(int but);
  void hand_out(const Launch& launch);
  void hand_out(const Subject& subject, const Emitted& emitted);
  void advance(const Subject& subject, int inputs);

  // Endings.
  void end_if_due(Generation& generation);
  void end_if_due(ScoreCall& call);
  void finish_sample(Generation& generation, int index, FinishReason reason);
  void end(Generation& generation, const Status& status);
  void end(ScoreCall& call, const Status& status);
  void end(Refeed& refeed, const Status& status);
  void give_back(Session*& session);
  void forget_ended();

  Model& model_;
  const EngineOptions& options_;
  Sessions& sessions_;
  TurnClock& time_;
  EngineMetrics& metrics_;
  const ModelLimits limits_;
  const std::function<void(const Status&)> on_failure_;

  std::vector<std::unique_ptr<Generation>> generations_;
  std::vector<std::shared_ptr<ScoreCall>> scores_;  // the Score calls that hold a slot
  std::vector<std::unique_ptr<Refeed>> refeeds_;
  Turns turns_;

  // Reused every turn.
  std::vector<Candidate> candidates_;
  std::vector<Subject> subjects_;  // the subject of each candidate
  Plan plan_;
  Launches launches_;
  FeedPace pace_;
  ValueGaps gaps_;

  Status failure_;  // set once, before failed_
  std::atomic<bool> failed_{false};
};

}  // namespace runnel
