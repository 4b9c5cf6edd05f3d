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
  // Why the turn cannot be fed: to an empty session (`at_start`), or to one that has begun
  // (`later`).
  Status at_start = {}, later = {};
  // For a session that has begun: the end of the last answer, then the new messages and the text
  // that asks for an answer.
  std::vector<int32_t> values = {};
  // The value that ends an answer; none: the template writes a text instead.
  std::optional<int32_t> end_of_turn = {};
  // How many of `values`, at their start, end the last answer. They are not fed if the session's
  // last value already ended it: if that value is end_of_turn, or one of Spec::eos.
  int64_t end = 0;
  // If the session's text ends with `stop_text`, `after_stop` is fed in place of `values`. "": no
  // text ends an answer.
  std::string stop_text = {};
  std::vector<int32_t> after_stop = {};
};

// How much of its conversation a session has read.
enum class TurnPlace : uint8_t {
  kStart,    // nothing
  kInside,   // no end of the last answer
  kEnd,      // its last value ends the last answer
  kStopText  // its last text ends the last answer
};

// The last values of a session that rests, oldest first: those that its state keeps, else the one
// that is pending.
std::vector<int32_t> last_values(Model& model, const Session& session);

// Where a session is that has begun. `last`: last_values(). `eos`: those of the spec. The tokenizer
// may be null where no text ends an answer.
TurnPlace place_in(const NextTurn& turn, std::span<const int32_t> last,
                   std::span<const int32_t> eos, const Tokenizer* tokenizer);

// OK, or why a session at this place cannot take the turn.
Status check_turn(const NextTurn& turn, TurnPlace place);

// How many values a session at this place is given by the request.
int64_t values_given(const GenerateRequest& request, TurnPlace place);

// Makes them the prompt of the request, which has no turn from there on. Allocates nothing.
void take_turn(GenerateRequest& request, TurnPlace place);

// The bytes of memory that a turn takes.
int64_t bytes_of(const NextTurn& turn);

}  // namespace runnel
