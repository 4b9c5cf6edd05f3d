// One choice of a completion: what a sample's runs of values come to, as OpenAI's API has it. The
// text ends before a stop text, and text that may become one is held back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_stream.h"
#include "models/text/tokenizer.h"
#include "server/calls/call_event.h"

namespace runnel {

// One value, where the request asks for more than text.
struct ChoiceToken {
  int32_t value = 0;
  std::optional<float> log_prob = 0.0F;  // none: nothing predicts it
  std::vector<TopLogProb> top = {};
  int64_t begin = 0;  // bytes of the choice's text before it
};

// Some of a choice that may go out.
struct ChoicePart {
  std::string text;
  std::vector<ChoiceToken> tokens;
  int64_t bytes = 0;       // of the choice's text before `text`
  int64_t characters = 0;  // the same in characters

  bool empty() const { return text.empty() && tokens.empty(); }
};

class CompletionChoice {
 public:
  // `stops` outlives this. `with_tokens`: the request asks for more than text.
  CompletionChoice(const std::vector<std::string>& stops, bool with_tokens)
      : stops_(stops), with_tokens_(with_tokens) {}

  // What comes before the values: the prompt's text, and its tokens where they are asked for.
  void begin(std::string_view text, std::vector<ChoiceToken> tokens = {});
  // A run of the sample.
  void add(const ValueRun& run);
  // The sample has ended: nothing is held back any more.
  void finish();
  // All that may go out and has not.
  ChoicePart take();

  // About how many bytes this holds.
  int64_t bytes() const;

 private:
  void find_stop();

  const std::vector<std::string>& stops_;
  const bool with_tokens_;
  std::string text_;                 // that has not been taken
  size_t free_ = 0;                  // bytes of it that may go out
  bool stopped_ = false;             // a stop text has come
  std::vector<ChoiceToken> tokens_;  // that have not been taken
  int64_t top_ = 0;                  // most likely values of theirs, in all
  int64_t bytes_ = 0;                // of text that have been taken
  int64_t characters_ = 0;           // the same
};

// Characters of valid UTF-8.
int64_t characters_in(std::string_view text);

// How a value is written where values are named: its text, "bytes:\xe2\x82" where that is not whole
// characters, or "token_id:5" without a tokenizer.
std::string token_name(int32_t value, const Tokenizer* tokenizer);

}  // namespace runnel
