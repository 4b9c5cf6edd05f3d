// The statuses of calls that cannot use a session of a store, or that were not saved.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/host/stored_session.h"
#include "storage/record.h"

namespace runnel {

// ABORTED: the call of `use` may not begin. `lease`: the length of a lease.
Status refusal_of(const Begun& begun, const SessionUse& use, Duration lease);

// ABORTED: the call was saved before, as `record` says, but its values were not kept.
Status values_not_kept(const std::string& id, const Record& record);

// ABORTED: the session was deleted, or another server continues it.
Status lost_session(const std::string& id);

// ABORTED: the state was replaced, but the session exists, so the status is not NOT_FOUND.
Status state_was_replaced(const std::string& id);

}  // namespace runnel
