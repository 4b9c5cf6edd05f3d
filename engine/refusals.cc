#include "engine/refusals.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/text.h"
#include "engine/fields.h"

namespace runnel {
namespace {

// `limit` says how many states there may be, `most`; `reason` as in Status.
Status too_many_states(int64_t needed, int64_t held, int64_t most, const std::string& limit,
                       std::string_view reason) {
  if (needed > most) {
    return invalid_argument("the call needs " + std::to_string(needed) + " states, and " + limit);
  }
  Status status(Code::kResourceExhausted,
                limit + ", and " + std::to_string(held) +
                    " are held; delete sessions that are done, or wait for calls to end");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason(reason);
}

}  // namespace

Status draining_status() {
  Status status(Code::kUnavailable, "the server is draining; try another one");
  return status.with_reason("draining");
}

Status shutting_down() {
  Status status(Code::kUnavailable, "the server is shutting down");
  return status.with_reason("draining");
}

Status mailbox_full() {
  Status status(Code::kResourceExhausted, "too many calls wait for the scheduler; try again");
  return status.with_retry_after(std::chrono::milliseconds(100)).with_reason("mailbox");
}

Status no_session(const std::string& id) {
  Status status = not_found("no session '" + id + "'");
  return status.at_field(fields::kSession);
}

Status no_session_to_continue(const std::string& id) {
  return not_found("no session '" + id + "': create it first, or leave " +
                   place_of(fields::kSession) + " out");
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

Status share_used_up(int64_t needed, int64_t held, int64_t share) {
  return too_many_states(needed, held, share,
                         "one caller may hold " + std::to_string(share) +
                             " states of a model (limits.sessions_per_caller)",
                         "sessions_per_caller");
}

Status states_used_up(const std::string& account, int64_t needed, int64_t held, int64_t sessions) {
  return too_many_states(needed, held, sessions,
                         "the quota of " + account + " is sessions " + std::to_string(sessions) +
                             ", states of all models together",
                         "quota_sessions");
}

Status no_room(int needed, int free, int slots, int stored) {
  if (needed > slots - stored) {  // not now and not later
    return invalid_argument(
        place_of(fields::kSamples) + " is " + std::to_string(needed) + ", and the server keeps " +
        std::to_string(slots) + " states in all" +
        (stored == 0 ? "" : ", of which " + std::to_string(stored) + " are stored ones") +
        "; ask for fewer, or start it with --sessions " + std::to_string(needed + stored));
  }
  Status status(Code::kResourceExhausted,
                "no room for " + std::to_string(needed) + " more states: " +
                    std::to_string(std::max(free, 0)) + " of " + std::to_string(slots) +
                    " sessions are free; try again later, or delete sessions that are done");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("sessions");
}

Status others_wait(int64_t waiting) {
  Status status(Code::kResourceExhausted,
                std::to_string(waiting) +
                    " calls wait for sessions to come free, and come first; try again later");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("sessions");
}

Status queue_full() {
  Status status(Code::kResourceExhausted,
                "too many calls wait for sessions to come free (limits.queue, "
                "limits.queue_bytes); try again later");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("queue");
}

}  // namespace runnel
