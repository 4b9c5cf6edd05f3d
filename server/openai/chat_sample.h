// One answer to a conversation: what a sample's values come to, whatever the endpoint that asked.
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
  // `prompt`, `options`: as of ChatAnswer. `stops` outlives this. `with_tokens`: take_tokens() is
  // asked for.
  ChatSample(const ChatAnswer::Options& options, std::string_view prompt,
             const std::vector<std::string>& stops, bool with_tokens)
      : choice_(stops, with_tokens), answer_(options, prompt) {}

  // A run of the sample.
  void add(const ValueRun& run);
  // The sample has ended: nothing is held back any more.
  void finish();

  // More values would change nothing.
  bool is_over() const { return answer_.is_over(); }

  // What may go out and has not.
  std::vector<ChatEvent> take_events() { return answer_.take(); }
  std::vector<ChoiceToken> take_tokens() { return std::exchange(tokens_, {}); }
  // The same without those that are thinking. None until it is known which they are.
  std::vector<ChoiceToken> take_spoken_tokens();

  // Values that are thinking; after finish().
  int64_t reasoning_tokens() const;
  // About how many bytes this holds.
  int64_t bytes() const;

 private:
  void take();

  CompletionChoice choice_;
  ChatAnswer answer_;
  std::vector<ChoiceToken> tokens_;  // that have not gone out
  int64_t top_bytes_ = 0;            // of most likely values, in all
  std::vector<int64_t> begins_;      // bytes of text before each value that may be thinking
  int64_t given_ = 0;                // bytes of text
  bool ended_ = false;
};

// A call in an answer gets an id, by which the client returns its result.
struct AnsweredToolCall {
  explicit AnsweredToolCall(ToolCall made);

  std::string id;
  ToolCall call;
};

}  // namespace runnel
