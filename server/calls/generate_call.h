// A Generate call: takes what its token stream gives and writes it as events, one at a time.
#pragma once

#include <memory>
#include <optional>

#include "engine/request.h"
#include "server/calls/call.h"
#include "server/calls/call_event.h"
#include "server/calls/group_events.h"
#include "server/calls/state_token.h"

namespace runnel {

class GenerateSink : public CallSink {
 public:
  // Sends an event, which is valid until this returns; Call::written() follows, unless it throws
  // std::bad_alloc.
  virtual void write(const GenerateEvent& event) = 0;
  // The scores of the prompt, before the first event, where start() was asked for them.
  virtual void take_scores(const ScoredChunk& /*scores*/) {}
  // The token of the state, just before Finished, where start_with_token() was asked for it.
  virtual void take_token(std::string /*token*/) {}
};

class GenerateCall final : public Call {
 public:
  // For start() or refuse(), after enter(), from which on the call is live. `sink` is the door's.
  // `state` outlives the call.
  static std::shared_ptr<GenerateCall> make(ServerContext& state, CallStart start,
                                            GenerateSink& sink);

  // Asks the model's engine for `request`, in the caller's name. What comes of it, a refusal as
  // well, comes through the sink.
  void start(std::shared_ptr<const ServedModel> model, GenerateRequest request);
  // The same once the prompt, which is not empty, has been scored, with `top_log_probs` of the most
  // likely values in the place of each value.
  void start_scored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                    int top_log_probs);

  // The same in a session that begins at a token, or anew, and ends with the call.
  void start_with_token(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                        const TokenUse& use);

  // The sink has had enough of a sample, which finishes as at a stop. From write() alone.
  void stop(int sample);

  void end(const Status& status) override;

 private:
  GenerateCall(ServerContext& state, CallStart start, GenerateSink& sink);
  Step next() override;
  Step take_scores(const Result<ScoredChunk>& scores);
  void take_session(const Status& status, std::shared_ptr<PassingSession> session);
  Step start_in_session(const Status& opened);
  std::shared_ptr<PassingSession> let_session_end();
  Step write_token();
  bool keep_for_token(GenerateEvent& event);
  void note(const GenerateEvent& event);
  void log_start(const GenerateRequest& request) const;

  GenerateSink& sink_;
  // With mutex_ held.
  std::shared_ptr<TokenStream> stream_;
  std::optional<Result<ScoredChunk>> scores_;  // until they have been taken
  GenerateRequest held_;          // starts when the prompt has been scored, or the session is there
  std::optional<Status> opened_;  // the session of a call with tokens, until it has been taken
  std::optional<Status> exported_;                  // its state, likewise
  std::shared_ptr<PassingSession> opened_session_;  // of a call with tokens, until it starts
  std::weak_ptr<PassingSession> session_;           // then
  std::shared_ptr<const void> token_room_;

  // With the turn.
  StreamGroup group_;
  std::optional<GroupEvents> events_;
  bool wants_token_ = false;
  bool notes_prompt_ = false;          // its values are not known before Finished
  std::optional<Finished> finished_;   // waits for the token
  std::shared_ptr<StateImage> image_;  // of the token; null: not asked for yet
};

}  // namespace runnel
