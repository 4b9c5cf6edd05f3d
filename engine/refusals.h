// Refusals of valid calls: the server is full, or about to stop; and the ends of tries that another
// try replaces. Each says when to try again, if it can help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

// UNAVAILABLE: the server is draining.
Status draining_status();

// UNAVAILABLE: the server stops, and ends the calls that still run.
Status shutting_down();

// RESOURCE_EXHAUSTED: too many calls wait for the scheduler.
Status mailbox_full();

// NOT_FOUND: the caller has no such session. `field` names it: fields::kId where the call is about
// the session, fields::kSession where it starts from one.
Status no_session(const std::string& id, std::string_view field);

// ALREADY_EXISTS: the caller has a session of the id that `field` is to give a new one.
Status session_exists(const std::string& id, std::string_view field);

// RESOURCE_EXHAUSTED: the account runs as many calls as it may.
Status calls_used_up(const std::string& account, int64_t calls);

// RESOURCE_EXHAUSTED: the account has had more values than `per_second` allows; it is behind by
// `behind`.
Status values_used_up(const std::string& account, int64_t per_second, Duration behind);

// The three that follow are INVALID_ARGUMENT where a call needs more states than it can ever get.
// `field` is the one of the request that asks for the states, if any does.

// RESOURCE_EXHAUSTED: a call needs `needed` states more than the `held` of its account, which may
// have `sessions` over all models.
Status states_used_up(const std::string& account, int64_t needed, int64_t held, int64_t sessions,
                      std::string_view field = {});

// RESOURCE_EXHAUSTED: a call needs `needed` states more than the `held` of its caller, who may have
// `share` of each model.
Status share_used_up(int64_t needed, int64_t held, int64_t share, std::string_view field = {});

// RESOURCE_EXHAUSTED: a call needs `needed` states, and `free` of `slots` are free; `stored` have
// a stored state permanently.
Status no_room(int needed, int free, int slots, int stored, std::string_view field = {});

// INVALID_ARGUMENT: another request has this id.
Status used_otherwise(const std::string& request_id);

// ABORTED: a sequence at `position` is not where its caller expects it.
Status not_at(int64_t position, int64_t expected);

// ABORTED: the end of an earlier try.
Status made_again();

// NOT_FOUND: there is no stored state of that name.
Status no_stored_state(const std::string& name);

// UNAVAILABLE, for good: the device of `model` has failed, as `reason` says.
Status device_failed(const std::string& model, const Status& reason);

// RESOURCE_EXHAUSTED: `waiting` calls wait for slots, and those that are free are theirs.
// `may_wait`: the call that is refused has a field that lets it wait as well.
Status others_wait(int64_t waiting, bool may_wait);

// RESOURCE_EXHAUSTED: as many calls wait for slots as may.
Status queue_full();

}  // namespace runnel
