#include "server/openai/chat_conversation.h"

#include <utility>

#include "base/fields.h"
#include "base/ordered_json.h"
#include "base/text.h"

namespace runnel {
namespace {

// The form in which the template writes calls.
std::optional<ToolCallForm> form_of_calls(const ChatTraits& traits) {
  for (const auto& rendered : {traits.call_without_content, traits.call_with_empty_content}) {
    if (const auto form = form_of(rendered.value_or(""))) return form;
  }
  return {};
}

ChatStart start_of(const AnswerRequest& request) {
  if (request.call.session) return ChatStart::kSession;
  if (request.token.given) return ChatStart::kToken;
  return request.call.state ? ChatStart::kState : ChatStart::kFresh;
}

}  // namespace

int64_t ChatConversation::bytes_to_read(std::string_view body) {
  return rendering_bytes(std::ssize(body));
}

int64_t ChatConversation::bytes_kept(const ChatRequest& request) {
  return tree_bytes(request.tools);
}

Fault ChatConversation::open(const ServedModel& model, const ChatRequest& request) {
  if (Status s = check_chats(model, request.answer.model); !s.ok()) return {s};
  format_ = model.chat;
  const ChatStart start = start_of(request.answer);
  const Status status = check_turns(model, request.answer.model, start);
  if (!status.ok()) return fault_of(status, word_of_);
  // A session or a token may have read tools with its first messages.
  const bool continues = start == ChatStart::kSession || start == ChatStart::kToken;
  if (!request.tools.is_null() || (continues && request.may_call)) {
    form_ = form_of_calls(format_->traits());
  }
  if (form_ || request.tools.is_null()) return {};
  return {invalid_argument("tools is set, but the chat template of model " +
                           quote(name_for(request.answer.model, model)) +
                           " writes no calls in a form that this server reads; leave tools out, "
                           "or send tool_choice 'none'"),
          "tools"};
}

Fault ChatConversation::prepare(ChatRequest& request, const TextInput& input, AnswerPrompt& made) {
  Conversation conversation;
  conversation.messages = std::exchange(request.messages, nullptr);
  conversation.tools = request.tools;
  conversation.variables = std::exchange(request.variables, nullptr);
  set_now(conversation, input.unix_time);
  auto prompt = prompt_of_call(*format_, std::move(conversation), request.continues,
                               start_of(request.answer), input.limit);
  if (!prompt.ok()) return fault_of(prompt.status(), word_of_);
  prompt_end_ = std::move(prompt->end);
  made.values = std::move(prompt->values);
  made.shared = prompt->shared;
  made.turn = std::move(prompt->turn);
  if (request.answer.call.ignore_eos) return {};
  made.end_of_turn = prompt->end_of_turn;
  made.stop = std::move(prompt->stop_texts);
  return {};
}

ChatAnswer::Options ChatConversation::options(const ChatRequest& request) const {
  // If the last message is empty, the template wrote the end of the prompt, and the answer begins.
  return {.form = form_,
          .tools = &request.tools,
          .one_call = request.one_call,
          .continues = request.continues && prompt_end_.empty()};
}

}  // namespace runnel
