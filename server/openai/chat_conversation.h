// Prepares the conversation of a request for a model. All chat endpoints use this class.
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
  // `word_of` gives the names of fields in faults.
  explicit ChatConversation(FieldWord word_of) : word_of_(std::move(word_of)) {}

  // The bytes of memory that reading and rendering a request with this body takes temporarily.
  static int64_t bytes_to_read(std::string_view body);

  // Refuses a model without a template. If the request has tools, also refuses a model whose
  // template writes no tool calls.
  Fault open(const ServedModel& model, const ChatRequest& request);
  // The bytes of memory that the request takes until the answer ends.
  static int64_t bytes_kept(const ChatRequest& request);
  // Renders the request's messages, and moves them out of the request.
  Fault prepare(ChatRequest& request, const TextInput& input, AnswerPrompt& made);

  // The options for ChatAnswer, and the end of the prompt. `request` must outlive the answer.
  ChatAnswer::Options options(const ChatRequest& request) const;
  const std::string& prompt_end() const { return prompt_end_; }

 private:
  const FieldWord word_of_;
  std::shared_ptr<const ChatFormat> format_;
  std::optional<ToolCallForm> form_;  // the form of tool calls in the answer
  std::string prompt_end_;
};

}  // namespace runnel
