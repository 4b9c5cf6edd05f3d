#include "server/openai/response_request.h"

#include <array>
#include <functional>
#include <string>
#include <utility>

#include "base/limits.h"
#include "server/openai/chat_fields.h"
#include "server/openai/neutral_fields.h"
#include "server/openai/response_items.h"
#include "server/openai/sampling_fields.h"

namespace runnel {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr size_t kMaxMetadata = 16;
constexpr const char* kLogprobs = "message.output_text.logprobs";

constexpr std::array kRefused = {
    RefusedField{"conversation",
                 "is not supported here: this server keeps no conversations; send their items in "
                 "input, or previous_response_id"},
    RefusedField{"prompt", "is not supported here: send its text as instructions or input"},
    RefusedField{"chat_template",
                 "is not taken from requests: the model's own template is used; leave it out"},
};

// Reads the members of an object. Their faults name the object.
void read_object(RequestFields& fields, const char* key,
                 const std::function<void(RequestFields&)>& read) {
  const Json* const object = fields.find(key);
  if (object == nullptr) return;
  if (!object->is_object()) return fields.refuse(key, "must be an object");
  RequestFields members(*object);
  read(members);
  const Fault fault = members.end();
  if (fault.ok()) return;
  fields.refuse(std::string(key) + "." + fault.param,
                fault.status.message().substr(fault.param.size() + 1));
}

// Reads `state_token` and `include_state`. A response with a token is not stored, because the token
// holds the conversation. Returns whether the response may be stored.
bool read_token_use(RequestFields& fields, AnswerRequest& answer) {
  read_tokens(fields, answer);
  const TokenUse& token = answer.token;
  if (token.given) {
    for (const char* const key : {"previous_response_id", "instructions"}) {
      if (fields.find(key) == nullptr) continue;
      fields.refuse(key,
                    "cannot be combined with state_token, whose conversation has begun; leave one "
                    "of them out");
    }
  }
  const bool store = fields.boolean("store", !token.any());
  if (!store || !token.any()) return store;
  fields.refuse("store", std::string("must be false with ") +
                             (token.given ? "state_token" : "include_state") +
                             ", for which nothing is kept on the server; leave it out");
  return false;
}

// Returns the fault of `recall`. Only this request's instructions apply: those of earlier responses
// are not repeated.
Fault read_items(RequestFields& fields, OrderedJson input, const Recall& recall,
                 ResponseRequest& request) {
  static_cast<void>(fields.find("input"));
  const auto instructions = fields.text("instructions");
  const auto previous = fields.text("previous_response_id");
  const bool store = read_token_use(fields, request.chat.answer);
  request.echo["instructions"] = instructions ? OrderedJson(*instructions) : OrderedJson();
  request.echo["previous_response_id"] = previous ? OrderedJson(*previous) : OrderedJson();
  request.echo["store"] = store;
  if (input.is_null()) {
    fields.refuse("input", "is not set; expected a text or a list");
    return {};
  }
  OrderedJson& messages = request.chat.messages;
  if (previous && !request.chat.answer.token.given) {
    if (Fault fault = recall(*previous, messages); !fault.ok()) return fault;
  }
  refuse(fields, read_input(std::move(input), messages));
  if (store) request.kept = json_text(messages);
  if (!instructions) return {};
  messages.insert(messages.begin(),
                  OrderedJson::object({{"role", "system"}, {"content", *instructions}}));
  return {};
}

void read_tool_fields(RequestFields& fields, OrderedJson tools, ResponseRequest& request) {
  static_cast<void>(fields.find("tools"));
  const bool may_call = read_tool_choice(fields, request.chat);
  OrderedJson& echo = request.echo;
  echo["tool_choice"] = may_call ? "auto" : "none";
  echo["parallel_tool_calls"] = !request.chat.one_call;
  OrderedJson& repeated = echo["tools"] = OrderedJson::array();
  if (tools.is_null()) return;
  OrderedJson made;
  refuse(fields, read_response_tools(std::move(tools), made));
  for (const OrderedJson& tool : made) {
    OrderedJson shown = {{"type", "function"}, {"parameters", nullptr}, {"strict", false}};
    shown.update(tool["function"]);
    repeated.push_back(std::move(shown));
  }
  if (may_call && !made.empty()) request.chat.tools = std::move(made);
}

void read_reasoning(RequestFields& fields, ResponseRequest& request) {
  OrderedJson& echo = request.echo["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  read_object(fields, "reasoning", [&](RequestFields& members) {
    read_effort(members, "effort", request.chat);
    const OrderedJson& variables = request.chat.variables;
    if (variables.contains("reasoning_effort")) echo["effort"] = variables["reasoning_effort"];
    for (const char* const key : {"summary", "generate_summary"}) {
      if (members.find(key) == nullptr) continue;
      members.refuse(key, "is not supported here: answers have the reasoning; leave it out");
    }
  });
}

void read_text_form(RequestFields& fields, ResponseRequest& request) {
  read_object(fields, "text", [](RequestFields& members) {
    read_only(members, "format", {{"type", "text"}}, R"({"type": "text"})");
    read_only(members, "verbosity", "medium", R"("medium")");
  });
  request.echo["text"] = {{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
}

void read_include(RequestFields& fields, AnswerRequest& answer) {
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogProbs);
  const Json* const include = fields.find("include");
  const bool is_list = include != nullptr && include->is_array();
  if (include != nullptr && !is_list) fields.refuse("include", "must be a list");
  bool wanted = false;
  for (const Json& what : is_list ? *include : Json::array()) {
    if (what == kLogprobs) {
      wanted = true;
    } else {
      fields.refuse("include",
                    "has " + describe(what) + "; only '" + kLogprobs + "' is supported here");
    }
  }
  if (top.value_or(0) > 0 && !wanted) {
    fields.refuse("top_logprobs",
                  std::string("is for log-probabilities: add '") + kLogprobs + "' to include");
  }
  if (!wanted) return;
  answer.logprobs = static_cast<int>(top.value_or(0));
  answer.call.top_log_probs = *answer.logprobs;
}

void read_form(RequestFields& fields, AnswerRequest& answer) {
  answer.stream = fields.boolean("stream", false);
  if (!answer.stream && fields.find("stream_options") != nullptr) {
    return fields.refuse("stream_options", "is for a stream: set stream");
  }
  read_object(fields, "stream_options", [](RequestFields& members) {
    members.boolean("include_obfuscation", false);  // pads events, which is not needed here
  });
}

// Reads texts by name, which the answer repeats.
void read_metadata(RequestFields& fields, OrderedJson metadata, ResponseRequest& request) {
  static_cast<void>(fields.find("metadata"));
  OrderedJson& echo = request.echo["metadata"] = OrderedJson::object();
  if (metadata.is_null()) return;
  bool fits = metadata.is_object() && metadata.size() <= kMaxMetadata;
  for (const OrderedJson& value : metadata) fits = fits && value.is_string();
  if (!fits) return fields.refuse("metadata", "must be an object of at most 16 texts");
  echo = std::move(metadata);
}

// Adds members of the answer with the values that were used.
void add_numbers(const Json& body, ResponseRequest& request) {
  const auto number = [&](const char* key) {
    const auto found = body.find(key);
    return found == body.end() || found->is_null() ? OrderedJson(1.0) : OrderedJson(*found);
  };
  const AnswerRequest& answer = request.chat.answer;
  request.echo.update({{"temperature", number("temperature")},
                       {"top_p", number("top_p")},
                       {"max_output_tokens", answer.call.max_values.value_or(0)},
                       {"top_logprobs", answer.logprobs.value_or(0)},
                       {"truncation", "disabled"},
                       {"background", false}});
}

}  // namespace

Fault read_response(OrderedJson body, int64_t max_tokens, const Recall& recall,
                    ResponseRequest& request) {
  OrderedJson input = taken(body, "input");
  OrderedJson tools = taken(body, "tools");
  OrderedJson metadata = taken(body, "metadata");
  const OrderedJson variables = taken(body, "chat_template_kwargs");
  const Json rest(body);
  RequestFields fields(rest);
  AnswerRequest& answer = request.chat.answer;
  answer.model = fields.text("model").value_or("");
  const Fault recalled = read_items(fields, std::move(input), recall, request);
  read_tool_fields(fields, std::move(tools), request);
  read_reasoning(fields, request);
  read_variables(fields, variables, request.chat);
  read_text_form(fields, request);
  read_include(fields, answer);
  answer.call.max_values = fields.integer("max_output_tokens", 1, kMostTokens).value_or(max_tokens);
  read_sampling(fields, answer.call);
  read_penalties(fields, answer.call);
  read_form(fields, answer);
  read_metadata(fields, std::move(metadata), request);
  add_numbers(rest, request);
  read_extensions(fields, answer);
  refuse_all(fields, kRefused);
  read_only(fields, "background", false, "false");
  read_only(fields, "truncation", "disabled", R"("disabled")");
  fields.integer("max_tool_calls", 1,
                 kMostTokens);  // for this server's own tools, of which there are none
  static_cast<void>(fields.find("prompt_cache_options"));  // changes nothing
  read_neutral(fields);
  read_harmless(fields);
  Fault fault = fields.end();
  return fault.ok() ? recalled : fault;
}

}  // namespace runnel
