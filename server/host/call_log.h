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

// Values that a log leads over, given and sampled ones together.
inline constexpr int64_t kMostLogValues = 256;

// A generation that continues a session, as far as the bits depend on it. It samples exactly
// max_values, so it needs neither stops nor times.
struct LoggedCall {
  GenerateRequest request;  // without session and caller
  int64_t before = 0;       // the session's position when the call started, and after it
  int64_t after = 0;
};

// Follows a generation to its end.
class CallNotes {
 public:
  // None if a log has no place for the call. The seed of `request` is set.
  static std::optional<CallNotes> of(const GenerateRequest& request);

  void start(const Started& started);
  void finish(const Finished& finished);
  // After finish(). None if the call cannot be computed again.
  const std::optional<LoggedCall>& call() const { return call_; }

 private:
  std::optional<LoggedCall> call_ = LoggedCall();
  bool is_long_at_start_ = false;  // the values for a session that is empty do not fit
};

// An entry for the record of session `key`.
std::string log_text(const LoggedCall& call, std::string_view numerics, std::string_view key);

// Reads the log of that record. DATA_LOSS: an entry is damaged or of another session.
// FAILED_PRECONDITION: it was computed under another numerics id than `numerics`.
Result<std::vector<LoggedCall>> read_log(const Record& record, std::string_view numerics,
                                         std::string_view key);

}  // namespace runnel
