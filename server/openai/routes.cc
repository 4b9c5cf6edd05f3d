#include "server/openai/routes.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "server/call_report.h"
#include "server/openai/completion.h"
#include "server/openai/header_text.h"
#include "server/openai/image_generation.h"
#include "server/openai/image_request.h"
#include "server/openai/openapi.h"
#include "server/openai/origin.h"
#include "server/openai/request_fields.h"
#include "server/openai/sessions.h"
#include "server/openai/short_call.h"

namespace runnel {
namespace {

// Of a body, as JSON, as values and as the answer.
constexpr int64_t kParsedPerByte = 64;
constexpr int64_t kParsedAnyway = 64 << 10;
constexpr int64_t kTokenBytes = 64;      // of a token in an answer, which doubles as it grows
constexpr int64_t kAnswerFactor = 40;    // of text: twice in the answer, escaped, and as it grows
constexpr int64_t kCharacterFactor = 3;  // of a byte that is no character

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

Fault refuse_chat(ShortCall& call) {
  if (Status s = call.state.models.ready(); !s.ok()) return {s};
  return {
      not_found("no model here has a chat template, which makes a prompt of messages: ask "
                "/v1/completions, with the prompt as the model was trained on it")};
}

Result<Json> read_body(ShortCall& call) {
  const int64_t bytes = kParsedAnyway + kParsedPerByte * std::ssize(call.request.body);
  if (Status s = call.reserve(bytes); !s.ok()) return s;
  return parse_body(call.request.body);
}

// llama-server's field or vLLM's.
std::string text_of(RequestFields& fields) {
  const auto content = fields.text("content");
  const auto prompt = fields.text("prompt");
  if (!content && !prompt) fields.refuse("prompt", "is not set; expected a text");
  return content ? *content : prompt.value_or("");
}

Fault tokenize(ShortCall& call) {
  const Result<Json> body = read_body(call);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  const std::string text = text_of(fields);
  if (fields.boolean("add_special_tokens", false) || fields.boolean("add_special", false)) {
    fields.refuse("add_special_tokens", "is not done here; leave it out, or false");
  }
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  if (Fault fault = call.find_model(model); !fault.ok()) return fault;
  const auto values = values_of_text(text, call.state.text_input(*call.model));
  if (!values.ok()) return fault_of(values.status());
  if (Status s = call.reserve(kTokenBytes * std::ssize(*values)); !s.ok()) return {s};
  call.answer = {{"tokens", *values}, {"count", values->size()}};
  return {};
}

// The text of `tokens`, no longer than that of a prompt.
Result<std::string> text_of(const std::vector<int32_t>& tokens, ShortCall& call) {
  const Tokenizer& tokenizer = *call.model->tokenizer;
  const int64_t at_most = call.state.text_bytes;
  const int64_t longest = kCharacterFactor * tokenizer.longest();
  const int64_t bytes = std::min(std::ssize(tokens) * longest, at_most + longest);
  if (Status s = call.reserve(kAnswerFactor * bytes); !s.ok()) return s;
  std::string text;
  Utf8Stream characters;
  for (const int32_t value : tokens) {
    characters.add(tokenizer.bytes(value), text);
    if (std::ssize(text) > at_most) break;
  }
  characters.end(text);
  if (std::ssize(text) <= at_most) return text;
  return invalid_argument("tokens come to more than " + std::to_string(at_most) +
                          " bytes of text; send fewer");
}

Fault detokenize(ShortCall& call) {
  const Result<Json> body = read_body(call);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  const auto tokens = fields.tokens("tokens");
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  if (Fault fault = call.find_model(model); !fault.ok()) return fault;
  if (call.model->tokenizer == nullptr) {
    return {invalid_argument("model '" + call.model->name + "' has no tokenizer"), "model"};
  }
  Result<std::string> text = text_of(tokens, call);
  if (!text.ok()) return {text.status(), "tokens"};
  call.answer["prompt"] = *text;
  call.answer["content"] = std::move(*text);
  return {};
}

// `handle`, each request of which is reported as a call of method `rpc`.
HttpHandler reported(ServerState& state, const char* rpc, HttpHandler handle) {
  return [&state, rpc, handle = std::move(handle)](const HttpRequest& request, HttpReply reply) {
    report(state, origin_of(rpc, state, request), nullptr, {}, {});
    handle(request, std::move(reply));
  };
}

}  // namespace

std::vector<HttpRoute> openai_routes(ServerState& state, const Gate& gate) {
  const int64_t created = std::time(nullptr);
  const auto short_call = [&](const char* rpc, std::function<Fault(ShortCall&)> handle) {
    return gate.guard(answer_at_once(state, rpc, std::move(handle)));
  };
  std::vector<HttpRoute> routes = {
      {"GET", "/v1/models",
       short_call("openai.models",
                  [created](ShortCall& call) { return list_models(call, created); })},
      {"GET", "/v1/models/*",
       short_call("openai.models",
                  [created](ShortCall& call) { return get_model(call, created); })},
      {"POST", "/v1/completions", gate.guard([&state](const HttpRequest& request, HttpReply reply) {
         start_completion(state, request, std::move(reply));
       })},
      {"POST", "/v1/images/generations",
       gate.guard([&state](const HttpRequest& request, HttpReply reply) {
         start_image_generation(state, request, std::move(reply));
       })},
      {"POST", "/v1/chat/completions", short_call("openai.chat", refuse_chat)},
      {"POST", "/tokenize", short_call("openai.tokenize", tokenize)},
      {"POST", "/detokenize", short_call("openai.detokenize", detokenize)},
      {"GET", "/openapi.json",
       gate.guard(reported(state, "openai.openapi",
                           [](const HttpRequest&, HttpReply reply) {
                             reply.send({200, "application/json", std::string(openapi_json())});
                           }))},
  };
  std::ranges::move(session_routes(state, gate), std::back_inserter(routes));
  std::set<std::string> paths;
  for (const HttpRoute& route : routes) paths.insert(route.path);
  for (const std::string& path : paths) {
    routes.push_back(
        {"OPTIONS", path, gate.guard(reported(state, "http.options", Gate::preflight))});
  }
  return routes;
}

void report_refusal(ServerState& state, const HttpRefusal& refusal) {
  const CallOrigin origin = {
      .rpc = "http.refused", .peer = std::string(refusal.peer), .caller = Caller()};
  report(state, origin, nullptr, {}, Status(code_of_http(refusal.status), refusal.message));
}

}  // namespace runnel
