// The next turn of a conversation on a session. The values to feed depend on how much of the end of
// the last answer the session has already consumed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace runnel {

class Model;
class Tokenizer;
struct GenerateRequest;
struct Session;

struct NextTurn {
  // Why the turn cannot be fed to an empty session (`at_start`), and to a session that has begun
  // (`later`). OK if it can.
  Status at_start = {}, later = {};
  // For a session that has begun: the end of the last answer, then the new messages and the text
  // that asks for an answer.
  std::vector<int32_t> values = {};
  // The value that ends an answer. None: the template ends an answer with a text.
  std::optional<int32_t> end_of_turn = {};
  // How many of the first `values` end the last answer. They are not fed if the session's last
  // value has already ended the answer, because it is end_of_turn or one of Spec::eos.
  int64_t end = 0;
  // If the session's text ends with `stop_text`, `after_stop` is fed in place of `values`. "": the
  // template ends no answer with a text.
  std::string stop_text = {};
  std::vector<int32_t> after_stop = {};
};

// How much of its conversation a session has read.
enum class TurnPlace : uint8_t {
  kStart,    // nothing
  kInside,   // the last answer, but not its end
  kEnd,      // the last answer, which the session's last value ends
  kStopText  // the last answer, which the end of the session's text ends
};

// The last values of a session at rest, oldest first: the recent values in its state if the state
// keeps them, else only the pending value.
std::vector<int32_t> last_values(Model& model, const Session& session);

// The place of a session that has begun. `last` is last_values(), and `eos` is Spec::eos. The
// tokenizer may be null if no text ends an answer.
TurnPlace place_in(const NextTurn& turn, std::span<const int32_t> last,
                   std::span<const int32_t> eos, const Tokenizer* tokenizer);

// OK if a session at this place can take the turn, else the reason why it cannot.
Status check_turn(const NextTurn& turn, TurnPlace place);

// How many values the request feeds to a session at this place.
int64_t values_given(const GenerateRequest& request, TurnPlace place);

// Makes these values the prompt of the request, and removes its turn. Allocates nothing.
void take_turn(GenerateRequest& request, TurnPlace place);

// The bytes of memory that a turn takes.
int64_t bytes_of(const NextTurn& turn);

}  // namespace runnel
