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
  std::shared_ptr<const ServedModel> model = nullptr;  // the model that the call is counted for
  OrderedJson answer = {};
  MemoryBudget::Hold room = {};  // held until the answer has been sent

  // ServedModels::find(), into `model`.
  Fault find_model(const std::string& name);
  // Reserves this many more bytes of memory. RESOURCE_EXHAUSTED if there are too few.
  Status reserve(int64_t bytes) { return state.memory.grow(room, room.bytes() + bytes); }
};

// A handler that identifies the caller, has `handle` make the answer or a fault, and reports the
// call as a call of method `rpc`, which must have static storage. `state` must outlive the handler.
HttpHandler answer_at_once(ServerContext& state, const char* rpc,
                           std::function<Fault(ShortCall&)> handle);

// A handler that calls `handle`, and reports each request as a call of method `rpc`, which must
// have static storage. `state` must outlive the handler.
HttpHandler count_requests(ServerContext& state, const char* rpc, HttpHandler handle);

}  // namespace runnel
