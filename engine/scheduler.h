// The one thread that owns sessions, slots and the model. Every turn it takes what waits, ends what
// is over, plans a batch, steps it, and hands out what came of it. It never waits for a full batch,
// and nothing is allocated between plan and hand-out.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/planner.h"
#include "engine/score_call.h"
#include "engine/session_table.h"
#include "engine/state_pool.h"

namespace runnel {

class Scheduler {
 public:
  using Command = std::function<void(Scheduler&)>;

  Scheduler(Model& model, const EngineOptions& options, const Clock& clock);

  // --- From any thread ---

  // False when too many commands wait.
  [[nodiscard]] bool put(Command command) { return mailbox_.put(std::move(command)); }
  void nudge() { mailbox_.nudge(); }
  // From here put() refuses.
  void close() { mailbox_.close(); }
  void drain() { draining_.store(true, std::memory_order_release); }
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  void end_all(Status status);
  // Room for what a call will lease; give_up() is called first thing when it arrives, or when it
  // could not be put. Claims nothing, and so never fails, for a call that needs none.
  [[nodiscard]] bool claim(int slots) { return slots == 0 || pool_.claim(slots); }
  void give_up(int slots) { pool_.give_up(slots); }
  Status lease_refusal(int needed) const;
  EngineStats stats() const;
  int active_calls() const { return active_calls_.load(std::memory_order_acquire); }

  // --- The scheduler's thread ---

  // True when it did something; otherwise wait().
  bool turn();
  // Until something changes, and no longer than the next thing that could be overdue.
  void wait();

  // Commands.
  void admit(GenerateRequest request, std::shared_ptr<TokenStream> stream);
  void feed_score(std::shared_ptr<ScoreCall> call, std::vector<int32_t> values,
                  std::function<void(Result<ScoredChunk>)> done);
  Result<SessionInfo> create_session(SessionKey key);
  Result<SessionInfo> get_session(const SessionKey& key);
  SessionPage list_sessions(const std::string& owner, const std::string& after, int count) const;
  Status delete_session(const SessionKey& key);

 private:
  // Who stands behind a candidate: a sample of a generation, its prompt, or a Score call.
  struct Subject {
    Generation* generation = nullptr;
    ScoreCall* score = nullptr;
    int sample = 0;
  };

  // Admission.
  Status try_admit(Generation& generation);
  bool find_retried(Generation& generation);
  Status try_resume(Generation& generation);
  void resume(Generation& generation, Session& session);
  void start_stream(Generation& generation, const Session& first, int64_t position);
  Result<Session*> source_of(const Generation& generation);
  Result<Session*> open_samples(Generation& generation, Session* source);
  void begin_feeding(Generation& generation);
  void start_sampling(Generation& generation);
  void start_sample(Generation& generation, int index);
  Status open_score(ScoreCall& call);

  // Slots.
  void copy_state(Session& from, Session& to);
  void set_slot(const Session& session, Control control, bool zero_state);
  void end_session(Session& session);
  static SessionKey key_of(const GenerateRequest& request);
  SessionKey unused_key(const std::string& owner);

  // Endings.
  void end_what_is_over();
  void end_if_over(Generation& generation);
  void finish_sample(Generation& generation, int index, FinishReason reason);
  void end_generation(Generation& generation, Status status);
  void forget_session(Session& session);
  void give_back(Sample& sample);
  void end_score(ScoreCall& call, Status status);
  void expire_sessions();
  void forget_ended();

  // The step.
  void run_commands();
  void gather();
  void gather_samples(Generation& generation);
  void replay_recorded(Generation& generation);
  void step();
  Status collect(Ticket ticket);
  void lose(const Subject& subject, const Status& status);
  void advance(const Subject& subject, int inputs);
  void hand_out(const Subject& subject, const Emitted& emitted);
  void publish();

  Model& model_;
  const EngineOptions options_;
  const Clock& clock_;
  const PlanLimits plan_limits_;

  Mailbox<Command> mailbox_;
  std::vector<Command> commands_;
  std::atomic<bool> draining_{false};
  std::mutex end_all_mutex_;
  std::optional<Status> end_all_;

  StatePool pool_;
  SessionTable sessions_;
  std::vector<std::unique_ptr<Generation>> generations_;
  std::vector<std::shared_ptr<ScoreCall>> scores_;  // those that hold a slot
  TimePoint next_expiry_{};
  std::mt19937_64 random_;  // seeds and ids that nobody asked for by name

  // Reused every turn.
  TimePoint now_{};
  std::vector<Candidate> candidates_;
  std::vector<Subject> subjects_;  // of candidates_
  Plan plan_;
  size_t round_ = 0;
  std::vector<Row> rows_;
  std::vector<Emitted> emitted_;

  std::atomic<int> active_calls_{0};
  std::atomic<int64_t> sessions_free_{0}, steps_{0}, sampled_{0}, consumed_{0};
};

}  // namespace runnel
