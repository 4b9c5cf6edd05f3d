// One choice of a completion in the form of OpenAI's API, made from a sample's runs of values. The
// text ends before a stop text. Text that may be the start of a stop text is held back.
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

// One value, for requests that ask for more than text.
struct ChoiceToken {
  int32_t value = 0;
  std::optional<float> log_prob = 0.0F;  // none: the value is not predicted
  std::vector<TopLogProb> top = {};
  int64_t begin = 0;  // how many bytes of the choice's text come before it
};

// A part of a choice that may be sent.
struct ChoicePart {
  std::string text;
  std::vector<ChoiceToken> tokens;
  int64_t bytes = 0;       // how many bytes of the choice's text come before `text`
  int64_t characters = 0;  // the same in characters

  bool empty() const { return text.empty() && tokens.empty(); }
};

class CompletionChoice {
 public:
  // `stops` must outlive this. `with_tokens`: the request asks for more than text.
  CompletionChoice(const std::vector<std::string>& stops, bool with_tokens)
      : stops_(stops), with_tokens_(with_tokens) {}

  // Begins the choice with the prompt's text, and with its tokens if the request asks for them.
  void begin(std::string_view text, std::vector<ChoiceToken> tokens = {});
  // Adds a run of the sample.
  void add(const ValueRun& run);
  // To be called when the sample has ended. Text that was held back may then be taken.
  void finish();
  // The part that may be sent and has not been taken.
  ChoicePart take();

  // About how many bytes this holds.
  int64_t bytes() const;

 private:
  void find_stop();

  const std::vector<std::string>& stops_;
  const bool with_tokens_;
  std::string text_;                 // text that has not been taken
  size_t free_ = 0;                  // how many bytes of it may be sent
  bool stopped_ = false;             // there was a stop text
  std::vector<ChoiceToken> tokens_;  // tokens that have not been taken
  int64_t top_ = 0;                  // the number of all their most likely values
  int64_t bytes_ = 0;                // bytes of text that have been taken
  int64_t characters_ = 0;           // the same in characters
};

// Characters of valid UTF-8.
int64_t characters_in(std::string_view text);

// The name of a value: its text, "bytes:\xe2\x82" if the text is not whole characters, or
// "token_id:5" without a tokenizer.
std::string token_name(int32_t value, const Tokenizer* tokenizer);

}  // namespace runnel
