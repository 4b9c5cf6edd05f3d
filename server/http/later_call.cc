#include "server/http/later_call.h"

#include "base/within_memory.h"
#include "server/http/call_start.h"
#include "server/http/live_answer.h"

namespace runnel {

HttpHandler LaterCall::handler(ServerContext& state, const char* rpc, FieldWord word_of,
                               Begin begin) {
  return [&state, rpc, word_of = std::move(word_of), begin = std::move(begin)](
             const HttpRequest& request, HttpReply reply) {
    state.metrics.received.add(std::ssize(request.body));
    const std::shared_ptr<LaterCall> call(
        new LaterCall(state, call_start(rpc, state, request), word_of, std::move(reply)));
    state.calls.enter(call);
    Fault fault{call->start_.caller.status()};
    if (fault.ok() && request.method == "POST") fault = {call->quota_.begin(call->caller())};
    const Status status = within_memory([&] {
      if (fault.ok()) fault = begin(*call, request);
      return fault.status;
    });
    if (status.ok()) return;
    call->finish(fault.ok() ? Fault{status} : fault);
  };
}

void LaterCall::answer(const OrderedJson& json) { finish({}, json); }

void LaterCall::finish(const Fault& fault, const OrderedJson& json) {
  quota_.end();
  report(state_, start_, model_.get(), {}, fault.status);
  // Without memory for the answer the reply ends with 500.
  static_cast<void>(within_memory([&] {
    if (!fault.ok()) {
      send_fault(fault, reply_);
    } else {
      std::string text = json_text(json) + "\n";
      state_.metrics.sent.add(std::ssize(text));
      reply_.send({200, "application/json", std::move(text)},
                  live_answer(state_, shared_from_this()));
    }
    return Status();
  }));
  state_.calls.leave(shared_from_this());
}

}  // namespace runnel
