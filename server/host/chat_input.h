// Converts the conversation in a call to the values that an answer continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/work_limit.h"
#include "engine/next_turn.h"
#include "models/template/chat_format.h"
#include "server/host/served_models.h"

namespace runnel {

// How many bytes of memory each byte of JSON takes after parsing.
inline constexpr int64_t kTreePerByte = 32;

// The bytes of memory that reading and rendering a conversation takes temporarily. `body_bytes`:
// the size of the message with the conversation.
int64_t rendering_bytes(int64_t body_bytes);

// OK if the model has a chat template. NOT_FOUND says why it has none. `asked`: the name by which
// the caller asked for the model.
Status check_chats(const ServedModel& model, const std::string& asked);

// Sets the time that the template sees, in seconds since 1970.
void set_now(Conversation& conversation, int64_t unix_time);

// The values that an answer to a conversation continues, and how the answer ends.
struct ChatPrompt {
  std::vector<int32_t> values;
  std::string end;                           // the part of the text's end that the template wrote
  std::optional<int32_t> end_of_turn;        // the value that ends the answer; none: a text does
  std::vector<std::string> stop_texts = {};  // at most one: the text that ends the answer
  // How many of the first `values` the prompt of the next turn is likely to have, too. None:
  // unknown.
  std::optional<int64_t> shared = {};
  // The values for a session that has begun. They replace `values`.
  std::optional<NextTurn> turn = {};
};

// Renders a conversation up to the answer.
// - `continues`: the answer continues the last message, which must be an assistant's, with a text
//   or parts of type text as its content.
// - `fresh`: the sequence is new, so the values begin with the values that the format puts before a
//   first turn.
// Errors of ChatFormat::render() and encode().
Result<ChatPrompt> prompt_of_chat(const ChatFormat& format, Conversation conversation,
                                  bool continues, bool fresh, WorkLimit limit);

// Where a call with a conversation starts.
enum class ChatStart : uint8_t {
  kFresh,    // in a new sequence
  kState,    // after the values of a stored state
  kSession,  // in the conversation of a session, to which the call adds new messages
  kToken     // in the conversation of a state token, to which the call adds new messages
};

// OK if the messages of a call with this start are the whole conversation, or if the model's
// template can write new messages after any earlier ones. INVALID_ARGUMENT names the field that has
// the session or the token.
Status check_turns(const ServedModel& model, const std::string& asked, ChatStart start);

// INVALID_ARGUMENT if these messages can only be the first ones of a session or a token. It names
// the message or the field that must be left out.
Status check_later(const Conversation& news, ChatStart start);

// As prompt_of_chat(), for new messages on a session or a token. The result has the values both for
// an empty session and for one that has begun. If only one of the two can take the messages, the
// result has the reason for the other. It is an error if neither can.
Result<ChatPrompt> prompt_of_turn(const ChatFormat& format, Conversation news, bool continues,
                                  ChatStart start, WorkLimit limit);

// The prompt of a call: prompt_of_chat() or prompt_of_turn(), by its start. INVALID_ARGUMENT names
// the messages.
Result<ChatPrompt> prompt_of_call(const ChatFormat& format, Conversation conversation,
                                  bool continues, ChatStart start, WorkLimit limit);

}  // namespace runnel
