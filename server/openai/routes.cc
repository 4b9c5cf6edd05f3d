#include "server/openai/routes.h"

#include <string>
#include <utility>

#include "server/http/header_text.h"
#include "server/http/read_aside.h"
#include "server/http/short_call.h"
#include "server/openai/chat.h"
#include "server/openai/completion.h"
#include "server/openai/image_generation.h"
#include "server/openai/image_request.h"
#include "server/openai/response.h"

namespace runnel {
namespace {

OrderedJson model_json(const ServedModel& model, int64_t created) {
  const Spec& spec = model.engine->spec();
  return {
      {"id", model.name},
      {"object", "model"},
      {"created", created},
      {"owned_by", "runnel"},
      {"max_model_len", spec.max_length() == 0 ? OrderedJson() : OrderedJson(spec.max_length())},
      {"has_text", model.tokenizer != nullptr},
      {"image_size", spec.image ? OrderedJson(size_text(*spec.image)) : OrderedJson()}};
}

Fault list_models(ShortCall& call, int64_t created) {
  if (Status s = call.state.models.ready(); !s.ok()) return {s};
  OrderedJson data = OrderedJson::array();
  for (const auto& [name, model] : call.state.models.all_for(call.caller)) {
    data.push_back(model_json(*model, created));
  }
  call.answer = {{"object", "list"}, {"data", std::move(data)}};
  return {};
}

Fault get_model(ShortCall& call, int64_t created) {
  if (Fault fault = call.find_model(unescaped(call.request.part)); !fault.ok()) return fault;
  call.answer = model_json(*call.model, created);
  return {};
}

}  // namespace

std::vector<HttpRoute> openai_routes(ServerContext& state, const Gate& gate) {
  const int64_t created = state.clock.unix_time();
  const auto store = std::make_shared<ResponseStore>(state.memory);
  const auto short_call = [&](const char* rpc, std::function<Fault(ShortCall&)> handle,
                              Aside which = Aside::kLongBodies) {
    return gate.guard(read_aside(state, answer_at_once(state, rpc, std::move(handle)), which));
  };
  using Start = std::function<void(ServerContext&, const HttpRequest&, HttpReply)>;
  const auto long_call = [&](const Start& start, Aside which = Aside::kLongBodies) {
    const auto handle = [&state, start](const HttpRequest& request, HttpReply reply) {
      start(state, request, std::move(reply));
    };
    return gate.guard(read_aside(state, handle, which));
  };
  return {
      {"GET", "/v1/models",
       short_call("openai.models",
                  [created](ShortCall& call) { return list_models(call, created); })},
      {"GET", "/v1/models/*",
       short_call("openai.models",
                  [created](ShortCall& call) { return get_model(call, created); })},
      {"POST", "/v1/completions", long_call(start_completion)},
      {"POST", "/v1/images/generations", long_call(start_image_generation)},
      {"POST", "/v1/chat/completions", long_call(start_chat)},
      // Even a short request may name a long response.
      {"POST", "/v1/responses",
       long_call(
           [store](ServerContext& context, const HttpRequest& request, HttpReply reply) {
             start_response(context, store, request, std::move(reply));
           },
           Aside::kAlways)},
      {"GET", "/v1/responses/*",
       short_call(
           "openai.responses", [store](ShortCall& call) { return get_response(call, *store); },
           Aside::kAlways)},
      {"DELETE", "/v1/responses/*",
       short_call("openai.responses",
                  [store](ShortCall& call) { return delete_response(call, *store); })},
  };
}

}  // namespace runnel
