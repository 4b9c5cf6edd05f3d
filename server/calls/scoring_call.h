// A Score call: a chunk of values in, their log-probabilities out, and so on; the total last.
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

// One thing at a time: a chunk is read, scored, answered; then the next is read.
class ScoringCall final : public Call {
 public:
  // The call is live from enter() on. `sink` is the door's. `state` outlives the call.
  static std::shared_ptr<ScoringCall> make(ServerContext& state, CallStart start, ScoreSink& sink);

  // Asks for the first message; refuses the call as admit() does, and where the server loads its
  // models or drains.
  void start();

  // The client's message, or its end, has come. True: one of the functions below, or refuse(), must
  // follow. False: the call has ended meanwhile.
  bool arrived() { return end_read(); }
  // With the first message: the model, and where the sequence starts. `begin`, `keep`,
  // `max_queue_time` and what is not OK: as Engine::start_score().
  Status open(std::shared_ptr<const ServedModel> model, const Origin& origin, bool begin, bool keep,
              Duration max_queue_time);
  // Null before open().
  std::shared_ptr<const ServedModel> opened() const { return model(); }
  // The values of a chunk; after open(). `room` is kept for as long as the engine has them.
  void feed(std::vector<int32_t> values, std::shared_ptr<const void> room = nullptr);
  // The client has no more chunks.
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
  std::shared_ptr<ScoreCall> scoring_;  // the door's, from open() on
  std::optional<SessionUse> use_;       // of the session in the store, until it is opened
  std::weak_ptr<std::shared_ptr<StoredSession>> stored_;  // that session, while the call has it

  // With mutex_ held.
  Phase phase_ = Phase::kIdle;
  std::optional<Result<ScoredChunk>> answer_;  // to the last chunk
  std::vector<int32_t> first_;                 // chunk, while the session in the store opens
  std::shared_ptr<const void> first_room_;     // likewise
  std::optional<Result<std::shared_ptr<StoredSession>>> opened_stored_;  // until it has been taken
  Status saved_;                                                         // that session

  // With the turn.
  ScoredChunk scored_;
  bool reads_stored_ = false;  // the call only reads a session of the store
  bool answering_ = false;     // some of scored_ is to be written
  size_t written_ = 0;         // of scored_.log_probs
  ScoreTotal total_;
};

}  // namespace runnel
