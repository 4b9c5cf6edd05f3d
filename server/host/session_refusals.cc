#include "server/host/session_refusals.h"

#include <algorithm>
#include <chrono>

#include "base/fields.h"
#include "base/text.h"
#include "engine/refusals.h"

namespace runnel {

Status refusal_of(const Begun& begun, const SessionUse& use, Duration lease) {
  const int64_t position = begun.before.position;
  if (begun.outcome == FenceOutcome::kElsewhere) {
    return not_at(position, use.expected_position.value_or(position));
  }
  const std::string name = "session " + quote(use.id);
  if (begun.outcome == FenceOutcome::kBusy) {
    Status status(Code::kAborted, name + " is busy with a call on another server; try again");
    // The clock of that server may be ahead.
    return status.with_retry_after(
        std::min(std::chrono::milliseconds(begun.left_ms),
                 std::chrono::duration_cast<std::chrono::milliseconds>(lease)));
  }
  return {Code::kAborted, "the last call on " + name +
                              " was cut off, and the session is at position " +
                              std::to_string(position) + ": make that call again, or send " +
                              place_of(fields::kExpectedPosition) + " " + std::to_string(position) +
                              " to make another one"};
}

Status values_not_kept(const std::string& id, const Record& record) {
  const std::string made = record.answer.has_ended
                               ? "this call was made and saved already"
                               : "this call was stopped before its end and saved there";
  return {Code::kAborted, made + ", and its values are not kept: session " + quote(id) +
                              " is at position " + std::to_string(record.position) +
                              "; continue from there, with another " +
                              place_of(fields::kRequestId)};
}

Status lost_session(const std::string& id) {
  return {Code::kAborted, "session " + quote(id) +
                              " was deleted, or another server continues it: this call was not "
                              "saved"};
}

Status state_was_replaced(const std::string& id) {
  Status status(Code::kAborted, "the stored state of session " + quote(id) +
                                    " was replaced while it was read; try again");
  return status.with_retry_after(std::chrono::milliseconds(100));
}

}  // namespace runnel
