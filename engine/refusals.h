// The statuses of valid calls that are refused because the server is full or is about to stop, and
// of calls that a retry replaces. A status says when to try again, if trying again can help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

// UNAVAILABLE: the server is draining.
Status draining_status();

// UNAVAILABLE: the server is stopping, and ends the calls that still run.
Status shutting_down();

// RESOURCE_EXHAUSTED: too many calls wait for the scheduler.
Status mailbox_full();

// NOT_FOUND: the caller has no such session. `field` is the field that names the session:
// fields::kId if the call is about the session, fields::kSession if the call starts from it.
Status no_session(const std::string& id, std::string_view field);

// ALREADY_EXISTS: the caller already has a session with the id that `field` gives to a new session.
Status session_exists(const std::string& id, std::string_view field);

// RESOURCE_EXHAUSTED: the account already runs `calls` calls, its maximum.
Status calls_used_up(const std::string& account, int64_t calls);

// RESOURCE_EXHAUSTED: the account has had more values than `per_second` allows, and must wait for
// the given time.
Status values_used_up(const std::string& account, int64_t per_second, Duration behind);

// The next three are INVALID_ARGUMENT if a call needs more states than it can ever get. `field` is
// the field of the request that asks for the states, or empty.

// RESOURCE_EXHAUSTED: a call needs `needed` more states. Its account has `held`, and may have
// `sessions` over all models.
Status states_used_up(const std::string& account, int64_t needed, int64_t held, int64_t sessions,
                      std::string_view field = {});
// Whether `status` is RESOURCE_EXHAUSTED for this reason.
bool is_states_used_up(const Status& status);

// RESOURCE_EXHAUSTED: a call needs `needed` more states. Its account has `held`, and may have
// `share` of each model.
Status share_used_up(int64_t needed, int64_t held, int64_t share, std::string_view field = {});

// RESOURCE_EXHAUSTED: a call needs `needed` states, and `free` of `slots` slots are free. `stored`
// slots have stored states, which keep their slots.
Status no_room(int needed, int free, int slots, int stored, std::string_view field = {});

// INVALID_ARGUMENT: a different request has used this id.
Status used_otherwise(const std::string& request_id);

// ABORTED: a sequence is at `position`, but its caller expects it at `expected`.
Status not_at(int64_t position, int64_t expected);

// ABORTED: a retry has replaced this call.
Status made_again();

// NOT_FOUND: there is no stored state of that name.
Status no_stored_state(const std::string& name);

// UNAVAILABLE, permanently: the device of `model` has failed for this reason.
Status device_failed(const std::string& model, const Status& reason);

// RESOURCE_EXHAUSTED: `waiting` calls wait for slots, and the free slots are kept for them.
// `may_wait`: the request has a field that lets a call wait.
Status others_wait(int64_t waiting, bool may_wait);

// RESOURCE_EXHAUSTED: the queue of calls that wait for slots is full.
Status queue_full();

}  // namespace runnel
