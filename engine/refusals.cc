#include "engine/refusals.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/fields.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr std::string_view kStatesUsedUp = "quota_sessions";

// Such as "1 state" and "2 states".
std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// Such as "1 is" and "2 are".
std::string are(int64_t count) { return std::to_string(count) + (count == 1 ? " is" : " are"); }

// INVALID_ARGUMENT, because waiting cannot help. `limit` says how many states there may be.
Status never_fits(int64_t needed, std::string_view field, const std::string& limit) {
  // Every call needs one state, whatever its fields say.
  if (needed == 1) return invalid_argument("the call needs a state, and " + limit);
  const std::string who = field.empty() ? "the call needs " : place_of(field) + " asks for ";
  return invalid_argument(who + std::to_string(needed) + " states, and " + limit);
}

// `limit` is a text that says that there may be `most` states. `reason` is for Status::reason().
Status too_many_states(int64_t needed, int64_t held, int64_t most, std::string_view field,
                       const std::string& limit, std::string_view reason) {
  if (needed > most) return never_fits(needed, field, limit);
  Status status(Code::kResourceExhausted,
                limit + ", and " + are(held) +
                    " held; delete sessions that are done, or wait for calls to end");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason(reason);
}

}  // namespace

Status draining_status() {
  Status status(Code::kUnavailable, "the server is draining; try another one");
  return status.with_retry_after(std::chrono::milliseconds(100)).with_reason("draining");
}

Status shutting_down() {
  Status status(Code::kUnavailable, "the server is shutting down");
  return status.with_reason("draining");
}

Status mailbox_full() {
  Status status(Code::kResourceExhausted, "too many calls wait for the scheduler; try again");
  return status.with_retry_after(std::chrono::milliseconds(100)).with_reason("mailbox");
}

Status no_session(const std::string& id, std::string_view field) {
  const std::string advice =
      field == fields::kSession ? ": create it first, or leave " + place_of(field) + " out" : "";
  Status status = not_found("no session '" + id + "'" + advice);
  return status.at_field(field);
}

Status session_exists(const std::string& id, std::string_view field) {
  Status status(Code::kAlreadyExists, "session '" + id + "' exists already");
  return status.at_field(field);
}

Status calls_used_up(const std::string& account, int64_t calls) {
  Status status(Code::kResourceExhausted, account + " has used up its quota: calls is " +
                                              std::to_string(calls) +
                                              "; try again when one has ended");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("quota_calls");
}

Status values_used_up(const std::string& account, int64_t per_second, Duration behind) {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(behind);
  Status status(Code::kResourceExhausted,
                account + " has used up its quota: values_per_second is " +
                    std::to_string(per_second) + "; try again in " +
                    fixed(static_cast<double>(wait.count()) * 1e-3, 1) + " s");
  return status.with_retry_after(wait).with_reason("quota_values");
}

Status used_otherwise(const std::string& request_id) {
  return invalid_argument(place_of(fields::kRequestId) + " " + quote(request_id) +
                          " was used for another request on this session: choose a new one");
}

Status not_at(int64_t position, int64_t expected) {
  return {Code::kAborted, "the sequence is at position " + std::to_string(position) + ", not at " +
                              place_of(fields::kExpectedPosition) + " " + std::to_string(expected)};
}

Status made_again() {
  return {Code::kAborted, "the call was made again with the same " + place_of(fields::kRequestId)};
}

Status no_stored_state(const std::string& name) {
  Status status = not_found("no stored state " + quote(name));
  return status.at_field(fields::kState);
}

Status device_failed(const std::string& model, const Status& reason) {
  Status status(Code::kUnavailable,
                "the device of model '" + model + "' has failed: " + reason.message() +
                    "; the server stops, and its sessions are lost: call again once it is back, "
                    "or another one");
  return status.with_reason("device");
}

Status share_used_up(int64_t needed, int64_t held, int64_t share, std::string_view field) {
  return too_many_states(
      needed, held, share, field,
      "one caller may hold " + counted(share, "state") + " of a model (limits.sessions_per_caller)",
      "sessions_per_caller");
}

Status states_used_up(const std::string& account, int64_t needed, int64_t held, int64_t sessions,
                      std::string_view field) {
  return too_many_states(needed, held, sessions, field,
                         "the quota of " + account + " is sessions " + std::to_string(sessions) +
                             ", states of all models together",
                         kStatesUsedUp);
}

bool is_states_used_up(const Status& status) { return status.reason() == kStatesUsedUp; }

Status no_room(int needed, int free, int slots, int stored, std::string_view field) {
  if (needed > slots - stored) {
    return never_fits(needed, field,
                      "the server keeps " + std::to_string(slots) + " in all" +
                          (stored == 0 ? "" : ", of which " + are(stored) + " stored") +
                          (needed == 1 ? "; " : "; ask for fewer, or ") +
                          "start it with --sessions " + std::to_string(needed + stored));
  }
  Status status(Code::kResourceExhausted,
                "no room for " + counted(needed, "more state") + ": " +
                    std::to_string(std::max(free, 0)) + " of " + std::to_string(slots) +
                    " sessions are free; try again later, or delete sessions that are done");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("sessions");
}

Status others_wait(int64_t waiting, bool may_wait) {
  Status status(Code::kResourceExhausted,
                "free sessions go first to " + counted(waiting, "waiting call") +
                    "; try again later" +
                    (may_wait ? hint(", or set " + place_of(fields::kMaxQueueTime) + " to wait")
                              : std::string()));
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("sessions");
}

Status queue_full() {
  Status status(Code::kResourceExhausted,
                "too many calls wait for sessions to come free (limits.queue, "
                "limits.queue_bytes); try again later");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("queue");
}

}  // namespace runnel
