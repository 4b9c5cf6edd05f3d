#include "engine/session.h"

#include <array>

#include "base/check.h"

namespace runnel {

const char* session_state_name(SessionState state) {
  constexpr std::array kNames = {"new", "prompting", "generating", "idle", "ended"};
  return kNames[static_cast<size_t>(state)];
}

std::optional<SessionState> next_state(SessionState state, SessionEvent event) {
  using S = SessionState;
  using Next = std::optional<SessionState>;
  constexpr Next kNever = std::nullopt;
  // Rows by state, columns by event: feed, sample, pause, end.
  constexpr std::array<std::array<Next, 4>, 5> kTable = {{
      {S::kPrompting, S::kGenerating, kNever, S::kEnded},  // new
      {kNever, S::kGenerating, S::kIdle, S::kEnded},       // prompting
      {kNever, kNever, S::kIdle, S::kEnded},               // generating
      {S::kPrompting, S::kGenerating, kNever, S::kEnded},  // idle
      {kNever, kNever, kNever, kNever},                    // ended
  }};
  return kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

void Session::apply(SessionEvent event) {
  const std::optional<SessionState> next = next_state(state, event);
  check(next.has_value(), "the table of a session has this event in this state");
  state = *next;
}

}  // namespace runnel
