// The answers of /v1/completions, as text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/text/tokenizer.h"
#include "server/openai/answer_kind.h"
#include "server/openai/choice.h"

namespace runnel {

class CompletionFormat {
 public:
  struct Options {
    int64_t created = 0;  // seconds since 1970
    std::string model;
    std::string numerics;  // id
    std::shared_ptr<const Tokenizer> tokenizer;
    std::optional<int> logprobs;
    bool token_ids = false;   // in addition to the text
    bool usage_last = false;  // a stream ends with the usage
  };
  // Draws an id of 128 random bits.
  explicit CompletionFormat(Options options);

  bool wants_tokens() const { return options_.logprobs || options_.token_ids; }
  const Tokenizer* tokenizer() const { return options_.tokenizer.get(); }  // null: there is none

  // A member of "choices". `end` null: the answer continues.
  std::string choice(int index, const ChoicePart& part, const ChoiceEnd* end) const;
  // The whole answer, of choices joined by commas.
  std::string whole(const std::string& choices, const AnswerUsage& usage) const;
  // For a stream: the event of one choice, and the last events, with the usage if the request asks
  // for it.
  std::string chunk(const std::string& choice) const;
  std::string last_chunk(const AnswerUsage& usage) const;

 private:
  const Options options_;
  std::string head_;  // up to the choices
};

}  // namespace runnel
