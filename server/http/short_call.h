// A request that is answered at once, within its handler.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "server/host/served_models.h"
#include "server/host/server_context.h"
#include "server/http/fault.h"
#include "server/http/http_server.h"

namespace runnel {

struct ShortCall {
  ServerContext& state;
  const HttpRequest& request;
  const Caller& caller;
  std::shared_ptr<const ServedModel> model = nullptr;  // with which the call is counted; null: none
  OrderedJson answer = {};
  MemoryBudget::Hold room = {};  // until the answer has gone

  // ServedModels::find(), into `model`.
  Fault find_model(const std::string& name);
  // Reserves this many more bytes of memory. RESOURCE_EXHAUSTED if there are too few.
  Status reserve(int64_t bytes) { return state.memory.grow(room, room.bytes() + bytes); }
};

// A handler that asks who calls, has `handle` make the answer, or a fault, and reports the call as
// one of method `rpc`, which is of static storage. `state` outlives it.
HttpHandler answer_at_once(ServerContext& state, const char* rpc,
                           std::function<Fault(ShortCall&)> handle);

// `handle`, and a report of each request as a call of method `rpc`, which is of static storage.
// `state` outlives it.
HttpHandler count_requests(ServerContext& state, const char* rpc, HttpHandler handle);

}  // namespace runnel
