// A Score call: receives chunks of values, and answers each with log-probabilities. The total is
// last.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/calls/call.h"
#include "server/calls/call_event.h"
#include "server/host/kept_sessions.h"

namespace runnel {

class ScoreSink : public CallSink {
 public:
  // Asks the client for its next message; ScoringCall::arrived() follows, unless the call ends.
  virtual void read() = 0;
  // Sends an event, which is valid until this returns; Call::written() follows, unless it throws
  // std::bad_alloc.
  virtual void write(const ScoreEvent& event) = 0;
};

// The call reads a chunk, scores it and answers it, and only then reads the next one.
class ScoringCall final : public Call {
 public:
  // The call is live from enter() on. `state` must outlive the call.
  static std::shared_ptr<ScoringCall> make(ServerContext& state, CallStart start, ScoreSink& sink);

  // Asks for the first message. Refuses the call with the errors of admit(), and while the server
  // loads its models or drains.
  void start();

  // To be called when the client's message, or the end of its messages, has arrived. True: one of
  // the functions below, or refuse(), must follow. False: the call has already ended.
  bool arrived() { return end_read(); }
  // To be called with the first message, which names the model and where the sequence starts. The
  // other arguments and the errors are those of Engine::start_score().
  Status open(std::shared_ptr<const ServedModel> model, const Origin& origin, bool begin, bool keep,
              Duration max_queue_time);
  // Null before find_model().
  std::shared_ptr<const ServedModel> opened() const { return model(); }
  // Scores the values of a chunk. Only after open(). The call keeps `room` while the engine has the
  // values.
  void feed(std::vector<int32_t> values, std::shared_ptr<const void> room = nullptr);
  // To be called when the client sends no more chunks.
  void close();

 private:
  enum class Phase {
    kIdle,
    kReading,
    kOpened,
    kScoring,
    kAnswered,
    kClosed,
    kSaving,
    kSaved,
    kTotalled
  };
  using Stored = std::shared_ptr<std::shared_ptr<StoredSession>>;

  ScoringCall(ServerContext& state, CallStart start, ScoreSink& sink);
  Step next() override;
  void score(std::vector<int32_t> values, std::shared_ptr<const void> room);
  void open_stored(std::vector<int32_t> values, std::shared_ptr<const void> room);
  Step ask();
  Step score_first();
  Step take_answer();
  Step write_part();
  Step save_session();
  Step write_total();
  void answer(Result<ScoredChunk> chunk);
  Phase phase() const;
  void set_phase(Phase phase);

  ScoreSink& sink_;
  std::shared_ptr<ScoreCall> scoring_;  // used by the door's thread, from open() on
  std::optional<SessionUse> use_;       // of the session in the store, until it is opened
  std::weak_ptr<std::shared_ptr<StoredSession>> stored_;  // the session, while the call has it

  // With mutex_ held.
  Phase phase_ = Phase::kIdle;
  std::optional<Result<ScoredChunk>> answer_;  // to the last chunk
  std::vector<int32_t> first_;              // the first chunk, while the session in the store opens
  std::shared_ptr<const void> first_room_;  // the room of first_
  std::optional<Result<std::shared_ptr<StoredSession>>> opened_stored_;  // until it has been taken
  Status saved_;  // the outcome of saving that session

  // With the turn.
  ScoredChunk scored_;
  bool reads_stored_ = false;  // the call only reads a session of the store
  bool answering_ = false;     // some of scored_ is to be written
  size_t written_ = 0;         // of scored_.log_probs
  ScoreTotal total_;
};

}  // namespace runnel
