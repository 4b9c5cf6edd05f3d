#include "server/openai/chat_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/ordered_json.h"
#include "base/text.h"
#include "server/host/chat_messages.h"
#include "server/openai/chat_fields.h"
#include "server/openai/neutral_fields.h"
#include "server/openai/sampling_fields.h"

namespace runnel {
namespace {

constexpr int kDepth = kSchemaDepth + 4;  // a schema is in body, tools, tool and function
constexpr int64_t kMostTokens = int64_t{1} << 40;

// Fields of OpenAI's API that would change the answer.
constexpr std::array kRefused = {
    RefusedField{"functions", "is not supported here; send tools"},
    RefusedField{"function_call", "is not supported here; send tools and tool_choice"},
    RefusedField{"web_search_options", "is not supported here; leave it out"},
    RefusedField{"audio", "is not supported here: answers are text; leave it out"},
    RefusedField{"chat_template",
                 "is not taken from requests: the model's own template is used; leave it out"},
};

void read_conversation(RequestFields& fields, OrderedJson messages, ChatRequest& request) {
  static_cast<void>(fields.find("messages"));
  if (messages.is_null()) return fields.refuse("messages", "is not set; expected a list");
  refuse(fields, read_messages(messages));
  request.messages = std::move(messages);
}

void read_tool_fields(RequestFields& fields, OrderedJson tools, ChatRequest& request) {
  static_cast<void>(fields.find("tools"));
  request.may_call = read_tool_choice(fields, request);
  if (tools.is_null()) return;
  refuse(fields, read_tools(tools));
  if (request.may_call && !tools.empty()) request.tools = std::move(tools);
}

// Must come after samples and `state`.
void read_session(RequestFields& fields, GenerateRequest& call) {
  call.session = fields.text("session");
  if (!call.session) return;
  if (call.samples != 1)
    fields.refuse("n", "must be 1 with session, which continues with one answer");
  if (call.state) fields.refuse("state", "cannot be combined with session; leave one of them out");
}

void read_counts(RequestFields& fields, int64_t max_tokens, ChatRequest& chat) {
  AnswerRequest& request = chat.answer;
  const auto most = fields.integer("max_completion_tokens", 1, kMostTokens);
  const auto older = fields.integer("max_tokens", 1, kMostTokens);
  if (most && older && *most != *older) {
    fields.refuse("max_tokens", "differs from max_completion_tokens; send one of them");
  }
  if (older && !most) chat.length_field = "max_tokens";
  request.call.max_values = most ? *most : older.value_or(max_tokens);
  const bool wanted = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogProbs);
  if (top.value_or(0) > 0 && !wanted) {
    fields.refuse("top_logprobs", "is for logprobs: set logprobs to true");
  }
  if (!wanted) return;
  request.logprobs = static_cast<int>(top.value_or(0));
  request.call.top_log_probs = *request.logprobs;
}

void read_continuation(RequestFields& fields, ChatRequest& request) {
  request.continues = fields.boolean("continue_final_message", false);
  const bool prompts = fields.boolean("add_generation_prompt", !request.continues);
  if (prompts == request.continues) {
    fields.refuse("add_generation_prompt",
                  "is not supported here with this value; leave it out, or use "
                  "continue_final_message");
  }
  if (request.continues)
    refuse(fields, check_continues(request.messages, "continue_final_message"));
}

// Checks fields for which this server supports only one value.
void read_single_values(RequestFields& fields) {
  read_only(fields, "response_format", {{"type", "text"}}, R"({"type": "text"})");
  read_only(fields, "modalities", Json::array({"text"}), R"(["text"])");
  read_only(fields, "verbosity", "medium", R"("medium")");
  refuse_all(fields, kRefused);
  for (const char* const key : {"prediction", "prompt_cache_options"}) {
    static_cast<void>(fields.find(key));
  }
}

}  // namespace

Result<OrderedJson> parse_chat_body(std::string_view body) {
  const int64_t bytes = std::ssize(body);
  Result<OrderedJson> json = parse_ordered_json(body, "the body", {bytes, bytes, kDepth});
  if (!json.ok() || json->is_object()) return json;
  return invalid_argument("the body is " + describe(Json(*json)) + "; expected a JSON object");
}

Fault read_chat(OrderedJson body, int64_t max_tokens, ChatRequest& request) {
  OrderedJson messages = taken(body, "messages");
  OrderedJson tools = taken(body, "tools");
  const OrderedJson variables = taken(body, "chat_template_kwargs");
  const Json rest(body);
  RequestFields fields(rest);
  AnswerRequest& answer = request.answer;
  answer.model = fields.text("model").value_or("");
  read_conversation(fields, std::move(messages), request);
  read_tool_fields(fields, std::move(tools), request);
  read_effort(fields, "reasoning_effort", request);
  read_variables(fields, variables, request);
  read_continuation(fields, request);
  read_counts(fields, max_tokens, request);
  read_samples(fields, answer.call);
  read_sampling(fields, answer.call);
  read_penalties(fields, answer.call);
  read_stop(fields, answer);
  read_answer_form(fields, answer);
  read_extensions(fields, answer);
  read_keeping(fields, answer);
  read_tokens(fields, answer);
  read_session(fields, answer.call);
  read_single_values(fields);
  read_neutral(fields);
  read_harmless(fields);
  return fields.end();
}

}  // namespace runnel
