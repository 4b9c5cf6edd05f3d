// The text of a chat model's answer, taken apart: thinking, content and calls of tools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tool_calls.h"

namespace runnel {

// A part of an answer that may go out.
struct ChatEvent {
  enum class Kind { kThinking, kContent, kCall };

  Kind kind = Kind::kContent;
  std::string text = {};  // of kThinking and kContent: what comes next
  ToolCall call = {};     // of kCall: all of it

  friend bool operator==(const ChatEvent&, const ChatEvent&) = default;
};

// Takes text as it is sampled, cut anywhere. No part of a tag ever goes out as text, and the events
// joined by kind are the same wherever the text is cut. White space before and after thinking and
// before content is dropped, and so is the space between content and a call.
class ChatAnswer {
 public:
  struct Options {
    // How the model writes calls; none: the request has no tools, and a call is content.
    std::optional<ToolCallForm> form = {};
    const OrderedJson* tools = nullptr;  // of the request, which outlives this; null: none
    bool one_call = false;               // what follows the first call is dropped
  };
  // `prompt`: the end of the rendered prompt, as far as the template wrote it. The answer begins
  // with thinking if the prompt ends with <think>, or with that tag without its ">".
  ChatAnswer(const Options& options, std::string_view prompt);

  void add(std::string_view text);
  // The answer has ended: nothing is held back any more. A call without its closing tag is one if
  // it is well formed.
  void finish();
  // The events since the last take().
  std::vector<ChatEvent> take();

  // The rest of the answer is dropped.
  bool is_over() const { return state_ == State::kDropped; }
  // Whether what comes next may be thinking.
  bool is_thinking() const { return state_ == State::kStart || state_ == State::kThinking; }
  // Bytes of the text given to add() that are thinking, with its tags: the first ones. While
  // is_thinking(), a few more may follow from what has been given.
  int64_t thinking_bytes() const { return thinking_bytes_; }

  // About how many bytes this holds.
  int64_t bytes() const;

 private:
  // kStart: it is open whether the answer begins with thinking.
  enum class State { kStart, kThinking, kContent, kCall, kDropped };

  // Each does what it can with rest_; false: more text is needed.
  bool start();
  bool think();
  bool say();
  bool call();

  void run();
  void drop_prompt(std::string_view tag);
  // Moves the first bytes of rest_ to an event.
  void emit(ChatEvent::Kind kind, size_t bytes);
  void drop(size_t bytes);

  const Options options_;
  State state_ = State::kStart;
  std::string rest_;  // what has not gone out
  bool ended_ = false;
  bool spoke_ = false;          // in the present state, something but white space went out
  CallTags tags_ = {};          // of the call in hand, whose opening tag begins rest_
  std::optional<CallEnd> end_;  // of it
  int64_t taken_ = 0;           // bytes of the answer's text that have left rest_; below 0 in the
                                // prompt's part of rest_
  int64_t thinking_bytes_ = 0;
  std::vector<ChatEvent> events_;
};

}  // namespace runnel
