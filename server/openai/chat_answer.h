// Splits the text of a chat model's answer into thinking, content and calls of tools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tool_calls.h"

namespace runnel {

// A part of an answer that may be sent.
struct ChatEvent {
  enum class Kind { kThinking, kContent, kCall };

  Kind kind = Kind::kContent;
  std::string text = {};  // of kThinking and kContent: the next text
  ToolCall call = {};     // of kCall: the whole call
  int64_t end = 0;        // how many of the first bytes given to ChatAnswer::add() precede its end

  // Compares what clients get, which does not depend on how the text was cut.
  friend bool operator==(const ChatEvent& a, const ChatEvent& b) {
    return a.kind == b.kind && a.text == b.text && a.call == b.call;
  }
};

// Takes the text in pieces as it is sampled. No part of a tag is ever sent as text, and the events
// joined by kind do not depend on how the text is cut into pieces. White space before and after
// thinking, before content, and between content and a call is dropped. If the answer continues a
// message, it begins with content, and the white space at its start is kept.
class ChatAnswer {
 public:
  struct Options {
    // How the model writes calls; none: the request has no tools, and a call is content.
    std::optional<ToolCallForm> form = {};
    const OrderedJson* tools = nullptr;  // of the request, which must outlive this; null: none
    bool one_call = false;               // the text after the first call is dropped
    bool continues = false;  // the answer is the rest of a message whose start is in the prompt
  };
  // `prompt`: the part of the rendered prompt's end that the template wrote. The answer begins with
  // thinking if the prompt ends with <think>, or with this tag without its ">".
  ChatAnswer(const Options& options, std::string_view prompt);

  void add(std::string_view text);
  // To be called when the answer has ended. Text that was held back becomes events. A call without
  // its closing tag is accepted if it is well formed.
  void finish();
  // The events since the last take().
  std::vector<ChatEvent> take();

  // Whether the rest of the answer is dropped.
  bool is_over() const { return state_ == State::kDropped; }
  // Whether the next text may be thinking.
  bool is_thinking() const { return state_ == State::kStart || state_ == State::kThinking; }
  // How many of the first bytes given to add() are thinking, with its tags. While is_thinking(), a
  // few more of the bytes given so far may be added.
  int64_t thinking_bytes() const { return thinking_bytes_; }

  // About how many bytes this holds.
  int64_t bytes() const;

 private:
  // kStart: it is not known yet whether the answer begins with thinking.
  enum class State { kStart, kThinking, kContent, kCall, kDropped };

  // Each of these handles as much of rest_ as it can. False: more text is needed.
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
  std::string rest_;  // text that is not in an event yet
  bool ended_ = false;
  bool spoke_ = false;          // the present state has made an event that is not only white space
  CallTags tags_ = {};          // of the present call, whose opening tag begins rest_
  std::optional<CallEnd> end_;  // of the present call
  int64_t taken_ = 0;           // bytes of the answer's text that have left rest_; below 0 in the
                                // prompt's part of rest_
  int64_t thinking_bytes_ = 0;
  std::vector<ChatEvent> events_;
};

}  // namespace runnel
