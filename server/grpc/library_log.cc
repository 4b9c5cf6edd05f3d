#include "server/grpc/library_log.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <mutex>

#include "base/check.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr auto kBetweenLines = std::chrono::seconds(1);
constexpr size_t kMostText = 500;

// Global, because the library's function for messages takes no argument of ours.
struct Place {
  std::mutex mutex;
  const EventLog* log = nullptr;  // null: messages are dropped
  const Clock* clock = nullptr;   // null where `log` is
  TimePoint logged{};
  int64_t dropped = 0;  // since `logged`
};
Place place;

void take(gpr_log_func_args* message) {
  std::lock_guard lock(place.mutex);
  if (place.log == nullptr) return;
  const TimePoint now = place.clock->now();
  if (now - place.logged < kBetweenLines) {
    ++place.dropped;
    return;
  }
  place.log->warn(
      "grpc", {{"message", printable(message->message, kMostText)}, {"dropped", place.dropped}});
  place.logged = now;
  place.dropped = 0;
}

}  // namespace

LibraryLog::LibraryLog(const EventLog& log, const Clock& clock) {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  std::lock_guard lock(place.mutex);
  check(place.log == nullptr, "one log at a time takes the library's messages");
  place.log = &log;
  place.clock = &clock;
  place.logged = {};
  place.dropped = 0;
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function(&take);
}

LibraryLog::~LibraryLog() {
  std::lock_guard lock(place.mutex);
  place.log = nullptr;
}

}  // namespace runnel
