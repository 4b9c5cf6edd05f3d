// A request that the engine answers some steps later.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/call_report.h"
#include "server/http/http_server.h"
#include "server/live_calls.h"
#include "server/openai/fault.h"
#include "server/server_state.h"

namespace runnel {

class LaterCall final : public LiveCall, public std::enable_shared_from_this<LaterCall> {
 public:
  // Has the engine answer, by answer_later(), once, or gives a fault.
  using Begin = std::function<Fault(LaterCall&, const HttpRequest&)>;

  // A handler that asks who calls, and begins a call of method `rpc`, which is of static storage.
  // `state` outlives its calls.
  static HttpHandler handler(ServerState& state, const char* rpc, Begin begin);

  ServerState& state() { return state_; }
  const Caller& caller() const { return *origin_.caller; }
  // ServedModels::find(); the call is counted with the model.
  Result<std::shared_ptr<const ServedModel>> find_model(const std::string& name);
  // Makes room for so many more bytes of memory. RESOURCE_EXHAUSTED.
  Status reserve(int64_t bytes) { return state_.memory.grow(room_, room_.bytes() + bytes); }

  // Answers with a fault, or what `json_of` makes of the outcome on the writer's thread: the
  // scheduler's must not be held up.
  template <typename Outcome, typename JsonOf>
  void answer_later(Result<Outcome> outcome, JsonOf json_of) {
    make_ = [outcome = std::move(outcome), json_of = std::move(json_of)]() -> Result<OrderedJson> {
      if (!outcome.ok()) return outcome.status();
      return json_of(*outcome);
    };
    state_.writer.post<&LaterCall::answer>(shared_from_this());
  }

  // --- LiveCall ---

  // It has its answer soon in any case.
  void end(const Status& /*status*/) override {}
  void tend(TimePoint /*now*/) override {}

 private:
  LaterCall(ServerState& state, CallOrigin origin, HttpReply reply)
      : state_(state), origin_(std::move(origin)), reply_(std::move(reply)) {}
  void answer();
  void finish(const Fault& fault, const OrderedJson& json);

  ServerState& state_;
  const CallOrigin origin_;
  HttpReply reply_;
  std::shared_ptr<const ServedModel> model_;  // null before find_model()
  MemoryBudget::Hold room_;
  std::function<Result<OrderedJson>()> make_;
};

}  // namespace runnel
