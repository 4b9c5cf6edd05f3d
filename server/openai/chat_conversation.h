// The conversation of a request, made ready for a model: what the endpoints of chat have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/field.h"
#include "server/host/chat_input.h"
#include "server/host/served_models.h"
#include "server/host/text_input.h"
#include "server/http/fault.h"
#include "server/openai/answer_kind.h"
#include "server/openai/chat_answer.h"
#include "server/openai/chat_request.h"

namespace runnel {

class ChatConversation {
 public:
  // Faults have the words of this endpoint.
  explicit ChatConversation(FieldWord word_of) : word_of_(std::move(word_of)) {}

  // Bytes of memory that reading and rendering a request with such a body takes for a moment.
  static int64_t bytes_to_read(std::string_view body);

  // The model has to have a template, and one that writes calls where the request has tools.
  Fault open(const ServedModel& model, const ChatRequest& request);
  // Bytes of memory that open() and prepare() take for as long as the answer lasts.
  static int64_t bytes_kept(const ChatRequest& request);
  // Renders the request's messages, which it takes.
  Fault prepare(ChatRequest& request, const TextInput& input, AnswerPrompt& made);

  // How an answer is taken apart, and the end of the prompt. `request` outlives the answer.
  ChatAnswer::Options options(const ChatRequest& request) const;
  const std::string& prompt_end() const { return prompt_end_; }

 private:
  const FieldWord word_of_;
  std::shared_ptr<const ChatFormat> format_;
  std::optional<ToolCallForm> form_;  // of the calls that the answer may have
  std::string prompt_end_;
};

}  // namespace runnel
