// The answers of /v1/chat/completions, as text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/text/tokenizer.h"
#include "server/openai/answer_kind.h"
#include "server/openai/chat_sample.h"
#include "server/openai/choice.h"

namespace runnel {

// A whole choice.
struct ChatMessage {
  std::string content, thinking;
  std::vector<AnsweredToolCall> calls;
};

class ChatJson {
 public:
  struct Options {
    int64_t created = 0;  // seconds since 1970
    std::string model;
    std::string numerics;  // id
    std::shared_ptr<const Tokenizer> tokenizer;
    bool stream = false;
    std::optional<int> logprobs;
    bool token_ids = false;   // in addition to the text
    bool usage_last = false;  // a stream ends with the usage
  };
  // Draws an id.
  explicit ChatJson(Options options);

  bool wants_tokens() const { return options_.logprobs || options_.token_ids; }

  // A member of "choices". `finish_reason` is OpenAI's.
  std::string choice(int index, const ChatMessage& message, const std::vector<ChoiceToken>& tokens,
                     const ChoiceEnd& end, const char* finish_reason) const;
  // The whole answer, of choices joined by commas.
  std::string whole(const std::string& choices, const AnswerUsage& usage) const;

  // The event of one choice in a stream. `end` null: more events follow.
  std::string chunk(int index, const OrderedJson& delta, const std::vector<ChoiceToken>& tokens,
                    const ChoiceEnd* end = nullptr, const char* finish_reason = nullptr) const;
  // The last events of a stream, with the usage if the request asks for it.
  std::string last_events(const AnswerUsage& usage) const;

 private:
  void add_tokens(const std::vector<ChoiceToken>& tokens, OrderedJson& choice) const;

  const Options options_;
  std::string head_;  // up to the choices
};

// An entry of a list of log-probabilities.
OrderedJson logprob_json(const ChoiceToken& token, const Tokenizer* tokenizer);

// The two deltas of a call in a stream: first its name, then its arguments.
OrderedJson call_name_delta(int index, const AnsweredToolCall& call);
OrderedJson call_arguments_delta(int index, const AnsweredToolCall& call);

}  // namespace runnel
