// Opens the store that a setting names.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "storage/redis_socket.h"
#include "storage/store.h"

namespace runnel {

struct StoreSettings {
  std::string url;                 // parse_store_url()
  std::string sync = "each";       // of a directory: "none", "interval" or "each"
  std::string password_file = {};  // of Redis; empty: it asks for none
  RedisTlsFiles tls = {};          // of Redis with TLS
  StoreTimes times = {.ttl_ms = 604800000, .lease_ms = 5000, .timeout_ms = 1000};
};

// Opens a store. `clock` outlives it. INVALID_ARGUMENT, and errors of DirectoryStore::open() and
// RedisStore::open().
Result<std::shared_ptr<Store>> open_store(const StoreSettings& settings, const Clock& clock);

// Parts that stores share.

// 32 hexadecimal digits from the system's random numbers.
std::string new_replica();
// Appends `more` to `last`, and keeps only the end, which tail_of() needs.
void keep_tail(std::string& last, std::string_view more);
// Record::tail of a state, of which at least the last kTailBytes are given.
std::string tail_of(std::string_view state);
// Sorts ids and keeps the first `most`.
void keep_first(std::vector<std::string>& ids, size_t most);
// NOT_FOUND: a state was replaced while it was read.
Status state_replaced();

}  // namespace runnel
