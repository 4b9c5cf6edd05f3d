#include "engine/session.h"

#include <array>

#include "base/check.h"

namespace runnel {

const char* session_phase_name(SessionPhase state) {
  constexpr std::array kNames = {"new", "prompting", "generating", "moving", "idle", "ended"};
  return kNames[static_cast<size_t>(state)];
}

std::optional<SessionPhase> next_state(SessionPhase state, SessionEvent event) {
  using S = SessionPhase;
  using Next = std::optional<SessionPhase>;
  constexpr Next kNever = std::nullopt;
  // Rows by state, columns by event: feed, sample, move, pause, end.
  constexpr std::array<std::array<Next, 5>, 6> kTable = {{
      {S::kPrompting, S::kGenerating, S::kMoving, kNever, S::kEnded},  // new
      {kNever, S::kGenerating, kNever, S::kIdle, S::kEnded},           // prompting
      {kNever, kNever, kNever, S::kIdle, S::kEnded},                   // generating
      {kNever, kNever, kNever, S::kIdle, S::kEnded},                   // moving
      {S::kPrompting, S::kGenerating, S::kMoving, kNever, S::kEnded},  // idle
      {kNever, kNever, kNever, kNever, kNever},                        // ended
  }};
  return kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

void Session::apply(SessionEvent event) {
  const std::optional<SessionPhase> next = next_state(state, event);
  check(next.has_value(), "the table of a session has this event in this state");
  state = *next;
}

}  // namespace runnel
