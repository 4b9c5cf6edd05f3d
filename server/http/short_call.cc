#include "server/http/short_call.h"

#include <utility>

#include "base/within_memory.h"
#include "server/calls/call_report.h"
#include "server/host/call_quota.h"
#include "server/http/call_start.h"
#include "server/http/live_answer.h"

namespace runnel {

Fault ShortCall::find_model(const std::string& name) {
  auto found = state.models.find(caller, name);
  if (!found.ok()) return {found.status(), "model"};
  model = std::move(*found);
  return {};
}

HttpHandler answer_at_once(ServerContext& state, const char* rpc,
                           std::function<Fault(ShortCall&)> handle) {
  return [&state, rpc, handle = std::move(handle)](const HttpRequest& request, HttpReply reply) {
    state.metrics.received.add(std::ssize(request.body));
    const CallStart start = call_start(rpc, state, request);
    std::shared_ptr<const ServedModel> model;
    std::string body;
    std::shared_ptr<const void> kept;
    Fault fault{start.caller.status()};
    const Status status = within_memory([&] {
      if (!fault.ok()) return fault.status;
      CallQuota quota;
      if (request.method == "POST") fault = {quota.begin(*start.caller)};
      if (!fault.ok()) return fault.status;
      ShortCall call{.state = state, .request = request, .caller = *start.caller};
      fault = handle(call);
      model = std::move(call.model);
      if (!fault.ok()) return fault.status;
      body = json_text(call.answer) + "\n";
      kept = live_answer(state, std::make_shared<MemoryBudget::Hold>(std::move(call.room)));
      return Status();
    });
    if (!status.ok() && fault.ok()) fault = {status};
    report(state, start, model.get(), {}, fault.status);
    if (!fault.ok()) return send_fault(fault, reply);
    state.metrics.sent.add(std::ssize(body));
    reply.send({200, "application/json", std::move(body)}, std::move(kept));
  };
}

HttpHandler count_requests(ServerContext& state, const char* rpc, HttpHandler handle) {
  return [&state, rpc, handle = std::move(handle)](const HttpRequest& request, HttpReply reply) {
    report(state, call_start(rpc, state, request), nullptr, {}, {});
    handle(request, std::move(reply));
  };
}

}  // namespace runnel
