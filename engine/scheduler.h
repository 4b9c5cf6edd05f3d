// The scheduler: the one thread that owns sessions, slots and the model. Each turn it runs commands
// that wait, ends the calls that are finished, cancelled or out of time, plans a batch, steps it,
// and hands out the values. It never waits for a fuller batch, and allocates nothing between plan
// and hand-out. The work of commands in one turn is bounded, so that they do not hold up the steps.
//
// Where the model takes several launches at once, one stays on its way while the next is planned
// and submitted, so that the device need not wait for the host. What a row comes to is known
// without its values as long as it only samples: it may be given more steps, up to the last that it
// has left. Whatever ends a call before that first waits for the values that are on their way.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "engine/generation.h"
#include "engine/metrics.h"
#include "engine/options.h"
#include "engine/planner.h"
#include "engine/score_call.h"
#include "engine/sessions.h"
#include "engine/slot_queue.h"
#include "engine/state_move.h"

namespace runnel {

class Scheduler {
 public:
  struct Command {
    std::function<void(Scheduler&)> run;
    int64_t bytes = 0;  // of memory that it holds while it waits
    int work = 1;       // how long it takes, in units of an admission
  };

  // All three outlive it.
  Scheduler(Model& model, const EngineOptions& options, const Clock& clock);

  // --- From any thread ---

  // False when too many commands wait, or too many bytes.
  [[nodiscard]] bool put(Command command);
  // The same for a call that has been admitted, which a full mailbox does not end: at most one
  // such command waits for each slot.
  [[nodiscard]] bool put_admitted(Command command);
  void nudge() { mailbox_.nudge(); }
  // From here on put() refuses.
  void close() { mailbox_.close(); }
  void drain();
  // Why new calls are refused: the device has failed, or the engine drains. OK: they are not.
  Status refusal() const;
  // What the device has failed with, for good; OK while it has not.
  Status failure() const;
  void end_all(Status status);
  // Claims the slots that a call will lease, so that a full pool refuses at once, and so do slots
  // that are kept for calls that wait.
  Status claim(int slots);
  void give_up(int slots) { sessions_.give_up(slots); }
  // RESOURCE_EXHAUSTED where the caller's account has used up its values for more than a second.
  Status check_pace(const Caller& caller) const;
  EngineStats stats() const;
  const EngineMetrics& metrics() const { return metrics_; }
  TimePoint now() const { return clock_.now(); }
  int64_t rewind_bytes() const { return sessions_.rewinds().bytes(); }
  int active_calls() const { return active_calls_.load(std::memory_order_acquire); }

  // --- The scheduler's thread ---

  // True when it did something; otherwise call wait().
  bool turn();
  // Waits for a command or a nudge, at most until the next look at timeouts is due.
  void wait();

  // Commands.
  void admit(GenerateRequest request, const RequestDigest& digest,
             std::shared_ptr<TokenStream> stream);
  // `answers` is empty and has room for one more than `values`, and so have they where the call
  // begins with a first value.
  void feed_score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
                  std::vector<float> answers, std::function<void(Result<ScoredChunk>)> done);
  Result<SessionInfo> create_session(SessionKey key, const Caller& caller);
  Result<SessionInfo> get_session(const SessionKey& key);
  SessionPage list_sessions(const std::string& owner, const std::string& after, int count) const;
  Status delete_session(const SessionKey& key);
  // Children have distinct ids, or empty ones.
  void fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                    const Caller& caller, MoveDone done);
  // `image` has the bytes of one state.
  void export_session(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  void import_session(const std::string& id, std::shared_ptr<StateImage> image,
                      const Caller& caller, MoveDone done);
  void add_state(const std::string& name, std::shared_ptr<StateImage> image, MoveDone done);
  void rewind_session(const SessionKey& key, int64_t position, const Caller& caller, MoveDone done);

 private:
  // The owner of a candidate row: a sample of a generation, its prompt, or a Score call.
  struct Subject {
    Generation* generation = nullptr;
    ScoreCall* score = nullptr;
    int sample = 0;
  };

  // What was submitted, until its values have been handed out.
  struct Launch {
    struct Part {
      Subject subject;
      Want want = Want::kNext;
      int inputs = 0;
    };
    Ticket ticket = 0;
    TimePoint submitted{};
    int steps = 0;
    std::vector<Part> parts;  // by row
  };

  // Admission.
  void begin(std::unique_ptr<Generation> generation);
  void begin(const std::shared_ptr<ScoreCall>& call, bool has_waited);
  void begin_chunk(ScoreCall& call);
  Status take_room(int needed, const Caller& caller, bool has_waited);
  Status try_admit(Generation& generation);
  bool find_retried(Generation& generation);
  Status try_resume(Generation& generation);
  void resume(Generation& generation, Session& session);
  void start_stream(Generation& generation, const Session& first, int64_t position);
  Result<Session*> resolve(const Origin& origin, const Caller& caller);
  Result<Session*> open_samples(Generation& generation, Session* source);
  Session& open_sample(const GenerateRequest& request);
  bool begins_prompt(const GenerateRequest& request, int64_t position) const;
  Duration note_queued(TimePoint came);
  void complete_prompt(GenerateRequest& request, int64_t position) const;
  void begin_feeding(Generation& generation);
  void start_sampling(Generation& generation);
  void start_sample(Generation& generation, int index);
  Status open_score(ScoreCall& call, bool has_waited);
  Result<Session*> open_scored(const ScoreCall& call, Session* source, bool has_waited);

  // Waiting for slots.
  Status enqueue(std::unique_ptr<Generation> generation);
  Status enqueue(const std::shared_ptr<ScoreCall>& call);
  Status enqueue(QueuedCall call, Duration at_most);
  bool take_over_waiting(std::unique_ptr<Generation>& generation);
  bool serve_queue();
  bool may_go_on(const QueuedCall& call) const;
  void go_on(QueuedCall call);
  bool end_queued(const std::function<std::optional<Status>(const QueuedCall&)>& why);
  Status why_waiting(int needed, const Caller& caller) const;
  void tell_places();

  // Moves.
  void start_import(std::shared_ptr<StateImage> image, StateMove move, MoveDone done);
  Status open_targets(const std::vector<std::string>& ids, const Caller& caller, StateMove& move);
  void start_move(StateMove move, MoveDone done);
  bool move_states();
  int64_t move_piece(StateMove& move, int64_t most);
  void finish_move(StateMove& move);
  void end_moves(const Status& status);
  Status check_rewind(const Session& session, int64_t position);
  void feed_again(Session& session, std::vector<int32_t> values, const Caller& caller,
                  MoveDone done);

  // Endings.
  void end_calls();
  void end_every_call(const Status& status);
  void end_if_due(Generation& generation);
  void finish_sample(Generation& generation, int index, FinishReason reason);
  void end_generation(Generation& generation, Status status);
  void give_back(Sample& sample);
  void end_score(ScoreCall& call, Status status);
  void forget_ended();

  // The step.
  bool run_commands(size_t waiting);
  std::shared_ptr<OwnerTurns> turns_of(const Caller& caller);
  OwnerTurns& turns_of(const Subject& subject);
  int gather_owner(OwnerTurns& turns);
  bool is_ahead(const OwnerTurns& turns);
  void charge(const OwnerTurns& turns, int64_t values);
  void note_served();
  void gather();
  void gather_prompt(Generation& generation);
  void gather_samples(Generation& generation);
  void gather_score(ScoreCall& call);
  void resend_recorded(Generation& generation);
  void note_stall(Generation& generation);
  void submit();
  bool may_stay_on_its_way() const;
  void settle(int but);
  Status collect(Ticket ticket);
  void fail(const Status& reason);
  void hand_out(const Launch& launch);
  void advance(const Subject& subject, int inputs);
  void hand_out(const Subject& subject, const Emitted& emitted);
  void note_step(const Launch& launch);
  void note_gap(Duration gap);
  void count_gaps();
  void publish();

  Model& model_;
  const EngineOptions& options_;
  const Clock& clock_;
  const ModelLimits limits_;

  Mailbox<Command> mailbox_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex status_mutex_;
  std::optional<Status> end_all_;  // with status_mutex_ held
  Status failure_;                 // with status_mutex_ held

  Sessions sessions_;
  std::vector<std::unique_ptr<Generation>> generations_;
  std::vector<std::shared_ptr<ScoreCall>> scores_;            // those that hold a slot
  std::map<std::string, std::shared_ptr<OwnerTurns>> turns_;  // of accounts with running calls
  SlotQueue queue_;
  SlotRate slot_rate_;
  bool has_untold_ = false;  // a call in queue_ has not been told its place
  TimePoint next_tell_{};
  std::list<StateMove> moves_;  // the next one first

  // Reused every turn.
  TimePoint now_{};
  std::vector<Candidate> candidates_;
  std::vector<Subject> subjects_;  // of candidates_
  std::vector<Owner> owners_;      // of candidates_
  Plan plan_;
  uint64_t plans_ = 0;   // made so far, this one included
  uint64_t shares_ = 0;  // given so far
  bool paces_ = false;   // an account was left out of this plan
  std::vector<Row> rows_;
  std::vector<Emitted> emitted_;
  std::vector<Launch> launches_;  // those on their way first, in the order of submits
  int on_their_way_ = 0;
  TimePoint collected_{};  // when the last launch was
  Duration gap_{0};        // between values, noted but not yet counted
  int64_t gaps_ = 0;       // how often it was noted

  std::atomic<int> active_calls_{0};
  std::atomic<int> kept_for_{0};  // calls that wait, while free slots are kept for them
  std::atomic<int64_t> sessions_free_{0}, waiting_{0};
  EngineMetrics metrics_;
};

}  // namespace runnel
