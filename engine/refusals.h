// Refusals of valid calls: the server is full, or about to stop; and the ends of tries that another
// try replaces. Each says when to try again, if it can help.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

// UNAVAILABLE: the server is draining.
Status draining_status();

// UNAVAILABLE: the server stops, and ends the calls that still run.
Status shutting_down();

// RESOURCE_EXHAUSTED: too many calls wait for the scheduler.
Status mailbox_full();

// NOT_FOUND: the caller has no such session.
Status no_session(const std::string& id);
// The same, of a call that may do without one.
Status no_session_to_continue(const std::string& id);

// RESOURCE_EXHAUSTED: the account runs as many calls as it may.
Status calls_used_up(const std::string& account, int64_t calls);

// RESOURCE_EXHAUSTED: the account has had more values than `per_second` allows; it is behind by
// `behind`.
Status values_used_up(const std::string& account, int64_t per_second, Duration behind);

// RESOURCE_EXHAUSTED: a call needs `needed` states more than the `held` of its account, which may
// have `sessions` over all models. INVALID_ARGUMENT where the call needs more than that by itself.
Status states_used_up(const std::string& account, int64_t needed, int64_t held, int64_t sessions);

// INVALID_ARGUMENT: another request has this id.
Status used_otherwise(const std::string& request_id);

// ABORTED: the end of an earlier try.
Status made_again();

// NOT_FOUND: there is no stored state of that name.
Status no_stored_state(const std::string& name);

// UNAVAILABLE, for good: the device of `model` has failed, as `reason` says.
Status device_failed(const std::string& model, const Status& reason);

// RESOURCE_EXHAUSTED: a call needs `needed` states more than the `held` of its caller, who may have
// `share` of each model. INVALID_ARGUMENT where the call needs more than that by itself.
Status share_used_up(int64_t needed, int64_t held, int64_t share);

// RESOURCE_EXHAUSTED: a call needs `needed` states, and `free` of `slots` are free; `stored` have
// a stored state permanently. INVALID_ARGUMENT if the model has fewer slots than that: waiting is
// no use.
Status no_room(int needed, int free, int slots, int stored);

// RESOURCE_EXHAUSTED: `waiting` calls wait for slots, and those that are free are theirs.
Status others_wait(int64_t waiting);

// RESOURCE_EXHAUSTED: as many calls wait for slots as may.
Status queue_full();

}  // namespace runnel
