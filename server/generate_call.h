// A Generate call: takes what its token stream gives and writes it as events, one at a time.
#pragma once

#include <memory>

#include "engine/request.h"
#include "server/call.h"
#include "server/call_event.h"
#include "server/group_events.h"

namespace runnel {

class GenerateSink : public CallSink {
 public:
  // Sends an event, which is valid until this returns; Call::written() follows, unless it throws
  // std::bad_alloc.
  virtual void write(const GenerateEvent& event) = 0;
};

class GenerateCall final : public Call {
 public:
  // A live call, for start() or refuse(); `sink` is the door's. `state` outlives the call.
  static std::shared_ptr<GenerateCall> make(ServerState& state, CallOrigin origin,
                                            GenerateSink& sink);

  // Asks the model's engine for `request`, in the caller's name. What comes of it, a refusal as
  // well, comes through the sink.
  void start(std::shared_ptr<const ServedModel> model, GenerateRequest request);

  void end(const Status& status) override;

 private:
  GenerateCall(ServerState& state, CallOrigin origin, GenerateSink& sink);
  Step next() override;
  void note(const GenerateEvent& event);
  void log_start(const GenerateRequest& request) const;

  GenerateSink& sink_;
  std::shared_ptr<TokenStream> stream_;  // with mutex_ held

  // With the turn.
  StreamGroup group_;
  std::optional<GroupEvents> events_;
};

}  // namespace runnel
