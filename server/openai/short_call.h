// A request that is answered at once, within its handler.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "server/http/http_server.h"
#include "server/openai/fault.h"
#include "server/served_models.h"
#include "server/server_state.h"

namespace runnel {

struct ShortCall {
  ServerState& state;
  const HttpRequest& request;
  const Caller& caller;
  std::shared_ptr<const ServedModel> model = nullptr;  // with which the call is counted; null: none
  OrderedJson answer = {};
  MemoryBudget::Hold room = {};  // until the answer has gone

  // ServedModels::find(), into `model`.
  Fault find_model(const std::string& name);
  // Makes room for so many more bytes of memory. RESOURCE_EXHAUSTED.
  Status reserve(int64_t bytes) { return state.memory.grow(room, room.bytes() + bytes); }
};

// A handler that asks who calls, has `handle` make the answer, or a fault, and reports the call as
// one of method `rpc`, which is of static storage. `state` outlives it.
HttpHandler answer_at_once(ServerState& state, const char* rpc,
                           std::function<Fault(ShortCall&)> handle);

}  // namespace runnel
