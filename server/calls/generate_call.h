// A Generate call: takes groups from its token stream, and writes them as events, one at a time.
#pragma once

#include <memory>
#include <optional>

#include "engine/request.h"
#include "server/calls/call.h"
#include "server/calls/call_event.h"
#include "server/calls/group_events.h"
#include "server/calls/state_token.h"
#include "server/host/call_log.h"
#include "server/host/kept_sessions.h"

namespace runnel {

class GenerateSink : public CallSink {
 public:
  // Sends an event, which is valid until this returns. The door must then call Call::written(),
  // unless this throws std::bad_alloc.
  virtual void write(const GenerateEvent& event) = 0;
  // After start_scored(), before the scores: the prompt is being scored, or waits for a state to be
  // scored in.
  virtual void begin_scores() {}
  // Gets the scores of the prompt, before the first event, after start_scored().
  virtual void take_scores(const ScoredChunk& /*scores*/) {}
  // Gets the token of the state, just before Finished, if start_with_token() was asked for it.
  virtual void take_token(std::string /*token*/) {}
};

class GenerateCall final : public Call {
 public:
  // The call is live from enter() on. After that, one of the start functions or refuse() must
  // follow. `state` must outlive the call.
  static std::shared_ptr<GenerateCall> make(ServerContext& state, CallStart start,
                                            GenerateSink& sink);

  // Gives `request` to the model's engine in the caller's name. All results, including a refusal,
  // go to the sink.
  void start(std::shared_ptr<const ServedModel> model, GenerateRequest request);
  // The same, but scores the prompt first, and reports the `top_log_probs` most likely values at
  // each position. The prompt must not be empty.
  void start_scored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                    int top_log_probs);

  // The same in a session of this call alone, which starts from a state token or is new.
  void start_with_token(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                        const TokenUse& use);

  // Finishes a sample as if it had reached a stop sequence. Only write() may call this.
  void stop(int sample);

  void end(const Status& status) override;

 private:
  // The session that the call has open in the store.
  struct OpenSession {
    std::shared_ptr<StoredSession> session = nullptr;  // null: none, or none yet
    std::atomic<bool> is_adopted = false;              // adopt_made() has set it
  };
  using Stored = std::shared_ptr<OpenSession>;

  GenerateCall(ServerContext& state, CallStart start, GenerateSink& sink);
  Step next() override;
  bool uses_store(const GenerateRequest& request) const;
  void open_stored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                   std::optional<int> scored);
  Step start_stored(const Result<std::shared_ptr<StoredSession>>& opened);
  Status adopt_made(const GenerateEvent& event);
  Stored use_stored(GenerateRequest& request);
  std::function<void()> ender(std::shared_ptr<TokenStream> stream, Stored stored,
                              const std::string& made);
  void begin_save();
  void save_early();
  Step save_session();
  Step write_finished();
  void submit(std::shared_ptr<const ServedModel> model, GenerateRequest request);
  void submit_scored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                     int top_log_probs);
  Status refusal_of(Status status) const;
  Step take_scores(const Result<ScoredChunk>& scores);
  void take_session(const Status& status, std::shared_ptr<PassingSession> session);
  Step start_in_session(const Status& opened);
  std::shared_ptr<PassingSession> let_session_end();
  Step write_token();
  bool hold_finished(GenerateEvent& event);
  void note(const GenerateEvent& event);
  void log_start(const GenerateRequest& request) const;

  GenerateSink& sink_;
  // With mutex_ held.
  std::shared_ptr<TokenStream> stream_;
  std::optional<Result<ScoredChunk>> scores_;  // until they have been taken
  bool score_accepted_ = false;                // until the sink has been told
  GenerateRequest held_;            // starts after the prompt is scored, or the session is open
  MemoryBudget::Hold held_room_;    // of held_, while a session of the store opens
  std::optional<int> scored_;       // top_log_probs of start_scored()
  std::optional<Status> opened_;    // result of opening the session for a token, until it is taken
  std::optional<Status> exported_;  // result of exporting its state, until it is taken
  std::shared_ptr<PassingSession> opened_session_;  // of a call with tokens, until it starts
  std::weak_ptr<PassingSession> session_;           // after that
  std::shared_ptr<const void> token_room_;
  std::optional<Result<std::shared_ptr<StoredSession>>> opened_stored_;  // until it has been taken
  std::optional<Status> saved_;                                          // the result of save()

  // Only the thread with the turn (call.h) uses these.
  StreamGroup group_;
  std::optional<GroupEvents> events_;
  bool wants_token_ = false;
  bool notes_prompt_ = false;  // the length of the prompt is not known before Finished
  bool makes_stored_ = false;  // the call makes a session, which gets its record once it starts
  bool is_stored_ = false;     // the call has, or had, a session that must be saved
  bool reads_stored_ = false;  // the call only reads a session of the store
  bool saves_ = false;         // StoredSession::save() has been called
  // The call, for the log of the session. None: the session's state must be saved instead.
  std::optional<LoggedCall> logged_;
  std::weak_ptr<OpenSession> stored_;  // until the call releases it
  std::optional<Finished> finished_;   // held back until there is a token, or the session is saved
  std::shared_ptr<StateImage> image_;  // of the token; null: not asked for yet
};

}  // namespace runnel
