// The server context: the objects and settings that all calls of one server share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/chat_limits.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "base/token_limits.h"
#include "engine/request.h"
#include "models/state/seal.h"
#include "server/host/call_metrics.h"
#include "server/host/callers.h"
#include "server/host/event_log.h"
#include "server/host/fair_thread.h"
#include "server/host/live_calls.h"
#include "server/host/memory_budget.h"
#include "server/host/mishaps.h"
#include "server/host/reload_report.h"
#include "server/host/served_models.h"
#include "server/host/task_thread.h"
#include "server/host/text_input.h"

namespace runnel {

// Reading a message or body of at most this size takes less than a millisecond, so a thread that
// serves clients may do it. Longer ones are read on ServerContext::reader.
inline constexpr int64_t kReadAtOnce = 4 << 10;

// Why the state of a session was written to the store.
enum class SnapshotReason {
  kCall,   // a call ended that cannot be logged
  kFull,   // the log is full
  kRest,   // the session has a log, and has been at rest for a second
  kDrain,  // the session has a log, and the server stops
};
inline constexpr std::array<const char*, 4> kSnapshotReasons = {"call", "full", "rest", "drain"};

// Counters that do not depend on a model.
struct ServerMetrics {
  CallMetrics calls;                                       // calls that used no model
  Counter received, sent;                                  // bytes of messages
  Counter storage_errors;                                  // operations that failed in the store
  Counter replayed_values;                                 // values of logs that were replayed
  std::array<Counter, kSnapshotReasons.size()> snapshots;  // by SnapshotReason
  std::array<Counter, kCodes>
      tokens;  // state tokens received in calls, by the code that opening them gave
};

class KeptSessions;

struct ServerContext {
  // `event_log` and `the_clock` must outlive the context.
  explicit ServerContext(const EventLog& event_log, const Clock& the_clock = real_clock(),
                         int64_t call_bytes = limits::kCallBytes.default_value)
      : log(event_log), clock(the_clock), mishaps(event_log, the_clock), memory(call_bytes) {}

  // Converts text of a call to values of `model`. `asked`: the name by which the caller asked for
  // it.
  TextInput text_input(const ServedModel& model, const std::string& asked) const {
    return {.model = name_for(asked, model),
            .tokenizer = model.tokenizer,
            .at_most = text_bytes,
            .unix_time = clock.unix_time()};
  }

  const EventLog& log;
  const Clock& clock;
  Mishaps mishaps;           // exceptions on the threads that calls share
  bool access_log = true;    // a line for each call that has ended
  std::string version = {};  // of the program, for the metrics
  ServerMetrics metrics;
  MemoryBudget memory;  // of all calls
  Delivery delivery;    // the default for calls
  // How long a call waits for a slot if it does not say, over gRPC and over HTTP.
  Duration queue_time{}, http_queue_time{};
  int64_t text_bytes = 0;  // the most bytes of one prompt or chunk
  // The most samples and values of one call, as for the engines.
  int64_t samples = limits::kSamples.default_value;
  int64_t max_values = limits::kMaxValues.default_value;
  // The most values of an answer to a conversation, if the call does not say.
  int64_t chat_values = limits::kChatValues.default_value;
  Duration stall_timeout{};  // a call ends if its client sends nothing for this time, or takes
                             // nothing for twice this time
  std::optional<SealKeys> seal_keys;  // of exported states; imported states must have such a seal
  int64_t token_bytes = limits::kTokenBytes.default_value;  // the most bytes of a state in a token
  Duration token_ttl = std::chrono::milliseconds(limits::kTokenTtlMs.default_value);
  std::shared_ptr<KeptSessions> kept;  // null: there is no store; destroyed after the models
  Callers callers;
  ServedModels models;
  LiveCalls calls;
  AskReload reload;  // set before the first call; empty: this server cannot reload its models
  std::atomic<bool> draining{false};  // set before any engine drains; for calls without a model yet
  TaskThread writer{&mishaps};  // writes the events of calls; at most one task for each live call
  FairThread reader{&mishaps};  // reads long bodies and messages; at most one for each call
};

}  // namespace runnel
