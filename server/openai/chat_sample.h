// One answer to a conversation, made from the values of a sample. All endpoints of chat use this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/calls/call_event.h"
#include "server/openai/chat_answer.h"
#include "server/openai/choice.h"

namespace runnel {

class ChatSample {
 public:
  // `prompt`, `options`: as for ChatAnswer. `stops` must outlive this. `with_tokens`: take_tokens()
  // or take_spoken_tokens() will be called.
  ChatSample(const ChatAnswer::Options& options, std::string_view prompt,
             const std::vector<std::string>& stops, bool with_tokens)
      : choice_(stops, with_tokens), answer_(options, prompt) {}

  // Adds a run of the sample.
  void add(const ValueRun& run);
  // To be called when the sample has ended. Text that was held back may then be taken.
  void finish();

  // Whether more values would change nothing.
  bool is_over() const { return answer_.is_over(); }

  // The events that may be sent and have not been taken.
  std::vector<ChatEvent> take_events() { return answer_.take(); }
  std::vector<ChoiceToken> take_tokens();
  // The same without the tokens of thinking. Empty until it is known which tokens these are.
  std::vector<ChoiceToken> take_spoken_tokens();

  // How many values are thinking. Only after finish().
  int64_t reasoning_tokens() const;
  // About how many bytes this holds.
  int64_t bytes() const;

 private:
  void take();

  CompletionChoice choice_;
  ChatAnswer answer_;
  std::vector<ChoiceToken> tokens_;  // tokens that have not been taken
  int64_t top_bytes_ = 0;            // the bytes of all their most likely values
  std::vector<int64_t> begins_;      // bytes of text before each value that may be thinking
  int64_t given_ = 0;                // bytes of text so far
  bool ended_ = false;
};

// A call in an answer. It gets an id, with which the client sends its result.
struct AnsweredToolCall {
  explicit AnsweredToolCall(ToolCall made);

  std::string id;
  ToolCall call;
};

}  // namespace runnel
