// Opens the store that a setting names.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "storage/store.h"

namespace runnel {

// INVALID_ARGUMENT unless `url` is "memory" or "dir:PATH".
Status check_store_url(std::string_view url);

// Opens the store of `url`. `sync`: "none", "interval" or "each", for a directory. `clock` outlives
// the store. INVALID_ARGUMENT, and errors of DirectoryStore::open().
Result<std::shared_ptr<Store>> open_store(const std::string& url, const std::string& sync,
                                          const StoreTimes& times, const Clock& clock);

// Parts that stores share.

// 32 hexadecimal digits from the system's random numbers.
std::string new_replica();
// Record::tail of a state, of which at least the last kTailBytes are given.
std::string tail_of(std::string_view state);
// NOT_FOUND: a state was replaced while it was read.
Status state_replaced();

}  // namespace runnel
