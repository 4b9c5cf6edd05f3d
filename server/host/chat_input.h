// A conversation in a call, as the values that an answer continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/next_turn.h"
#include "models/template/chat_format.h"
#include "server/host/served_models.h"

namespace runnel {

// Bytes of memory that a byte of JSON takes once it is parsed.
inline constexpr int64_t kTreePerByte = 32;

// Bytes of memory that reading and rendering a conversation takes for a moment. `body_bytes`: of
// the message in which it came.
int64_t rendering_bytes(int64_t body_bytes);

// OK where the model, for which the caller asked by this name, has a chat template. NOT_FOUND says
// why there is none.
Status check_chats(const ServedModel& model, const std::string& asked);

// Tells the template the time, in seconds since 1970.
void set_now(Conversation& conversation, int64_t unix_time);

// What an answer to a conversation continues, and what ends it.
struct ChatPrompt {
  std::vector<int32_t> values;
  std::string end;                           // of its text, as far as the template wrote it
  std::optional<int32_t> end_of_turn;        // the value that ends the answer, or
  std::vector<std::string> stop_texts = {};  // at most one: the text that does
  // How many of `values` the prompt of the next turn is likely to begin with; none: not known.
  std::optional<int64_t> shared = {};
  // What a session that has begun is given in place of `values`.
  std::optional<NextTurn> turn = {};
};

// Renders a conversation up to the answer. `continues`: the answer continues the last message, an
// assistant's with a text or parts of type text as its content. `fresh`: the sequence is a new one,
// so that the values begin with those that the format puts before a first turn. INVALID_ARGUMENT
// and others as of ChatFormat::render() and encode().
Result<ChatPrompt> prompt_of_chat(const ChatFormat& format, Conversation conversation,
                                  bool continues, bool fresh, TimePoint until);

// Where the sequence is that a call with a conversation continues.
enum class ChatStart : uint8_t {
  kFresh,    // before its first value
  kState,    // after the values of a stored state
  kSession,  // in the conversation of a session: the messages are new ones
  kToken     // in the conversation of a state token, likewise
};

// OK where the messages of a call that starts there are all of its conversation, or where the
// model's template can write new messages, whatever came before them. INVALID_ARGUMENT names the
// field that has the session or the token.
Status check_turns(const ServedModel& model, const std::string& asked, ChatStart start);

// INVALID_ARGUMENT where only the first messages of a session or a token can be these: it names the
// message or the field that must go.
Status check_later(const Conversation& news, ChatStart start);

// The same of new messages on a session or a token, which decides where it begins. Messages that
// only an empty one can take, or only one that has begun, are refused by it with the reason. Errors
// where neither can.
Result<ChatPrompt> prompt_of_turn(const ChatFormat& format, Conversation news, bool continues,
                                  ChatStart start, TimePoint until);

// The one of these prompts that the call is to continue. INVALID_ARGUMENT names the messages.
Result<ChatPrompt> prompt_of_call(const ChatFormat& format, Conversation conversation,
                                  bool continues, ChatStart start, TimePoint until);

}  // namespace runnel
