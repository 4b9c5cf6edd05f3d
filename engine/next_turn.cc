#include "engine/next_turn.h"

#include <algorithm>
#include <utility>

#include "engine/request.h"
#include "engine/session.h"
#include "models/model.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

// Whether the last of `values` completes `text`.
bool completes(const std::string& text, std::span<const int32_t> values,
               const Tokenizer& tokenizer) {
  std::string tail;
  for (const int32_t value : values) tail += tokenizer.bytes(value);
  const size_t before = tail.size() - tokenizer.bytes(values.back()).size();
  const size_t from = before - std::min(before, text.size() - 1);
  return tail.find(text, from) != std::string::npos;
}

}  // namespace

std::vector<int32_t> last_values(Model& model, const Session& session) {
  const StateLayout& layout = model.layout();
  std::vector<int32_t> values;
  if (layout.recent > 0) {
    std::vector<int32_t> entries(static_cast<size_t>(layout.recent));
    model.read(session.slot, layout.recent_offset, std::as_writable_bytes(std::span(entries)));
    const RecentRing ring = {entries.data(), layout.recent};
    ring.before(session.position, [&](int64_t, int32_t value) { values.push_back(value); });
  }
  if (values.empty() && session.pending != kNoValue) values.push_back(session.pending);
  return values;
}

TurnPlace place_in(const NextTurn& turn, std::span<const int32_t> last,
                   std::span<const int32_t> eos, const Tokenizer* tokenizer) {
  if (last.empty()) return TurnPlace::kInside;
  const int32_t value = last.back();
  if (value == turn.end_of_turn || std::ranges::count(eos, value) > 0) return TurnPlace::kEnd;
  const bool may_stop = !turn.stop_text.empty() && tokenizer != nullptr;
  return may_stop && completes(turn.stop_text, last, *tokenizer) ? TurnPlace::kStopText
                                                                 : TurnPlace::kInside;
}

Status check_turn(const NextTurn& turn, TurnPlace place) {
  return place == TurnPlace::kStart ? turn.at_start : turn.later;
}

int64_t values_given(const GenerateRequest& request, TurnPlace place) {
  switch (place) {
    case TurnPlace::kStart:
      break;
    case TurnPlace::kInside:
      return std::ssize(request.turn->values);
    case TurnPlace::kEnd:
      return std::ssize(request.turn->values) - request.turn->end;
    case TurnPlace::kStopText:
      return std::ssize(request.turn->after_stop);
  }
  return std::ssize(request.prompt);
}

void take_turn(GenerateRequest& request, TurnPlace place) {
  if (!request.turn) return;
  NextTurn& turn = *request.turn;
  if (place == TurnPlace::kStopText) {
    request.prompt = std::move(turn.after_stop);
  } else if (place != TurnPlace::kStart) {
    if (place == TurnPlace::kEnd)
      turn.values.erase(turn.values.begin(), turn.values.begin() + turn.end);
    request.prompt = std::move(turn.values);
  }
  request.turn.reset();
}

int64_t bytes_of(const NextTurn& turn) {
  const size_t values = turn.values.size() + turn.after_stop.size();
  return static_cast<int64_t>(values * sizeof(int32_t) + turn.stop_text.size());
}

}  // namespace runnel
