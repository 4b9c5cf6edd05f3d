// The log of a session in a store: the calls since its last state, so that they can be computed
// again with the same bits (docs/decisions/storage.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "storage/record.h"

namespace runnel {

// The maximum number of values of all calls of a log, given and sampled together.
inline constexpr int64_t kMostLogValues = 256;

// A hash of values. It tells whether a replay has sampled the same values.
inline constexpr uint64_t kNoValues = 14695981039346656037U;  // FNV-1a
inline uint64_t hash_with(uint64_t hash, int32_t value) {
  return (hash ^ static_cast<uint32_t>(value)) * 1099511628211U;
}

// The parts of a generation on a session that its bits depend on. It samples exactly max_values, so
// it needs neither stop sequences nor time limits.
struct LoggedCall {
  GenerateRequest request;  // without session and caller
  int64_t before = 0;       // the session's position when the call started, and after it
  int64_t after = 0;
  uint64_t sampled = kNoValues;  // hash_with() of each value that it sampled
};

// The logged form of a request whose seed is set. None if the call cannot be logged. It is complete
// after note_start() and note_end() have got its events, and `sampled` has its values. These two
// functions clear it if the call cannot be computed again.
std::optional<LoggedCall> loggable(const GenerateRequest& request);
void note_start(std::optional<LoggedCall>& call, const Started& started);
void note_end(std::optional<LoggedCall>& call, const Finished& finished);

// An entry for the log of a record.
std::string log_text(const LoggedCall& call, std::string_view numerics);

// Reads the log of a record. DATA_LOSS: an entry is damaged, or does not follow the one before it.
// FAILED_PRECONDITION: it was computed under another numerics id than `numerics`.
Result<std::vector<LoggedCall>> read_log(const Record& record, std::string_view numerics);

}  // namespace runnel
