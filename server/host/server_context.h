// The server context: what all calls of one server share.
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

// A message or body of this many bytes takes a thread that serves less than a millisecond. Longer
// ones are read on ServerContext::reader.
inline constexpr int64_t kReadAtOnce = 4 << 10;

// Why the state of a session was written to the store.
enum class SnapshotReason {
  kCall,   // a call ended that the log has no place for
  kFull,   // the log is full
  kRest,   // the session has rested for a second, with a log
  kDrain,  // the server stops, and the session has a log
};
inline constexpr std::array<const char*, 4> kSnapshotReasons = {"call", "full", "rest", "drain"};

// Counters that belong to no model.
struct ServerMetrics {
  CallMetrics calls;                                       // that came to no model
  Counter received, sent;                                  // bytes of messages
  Counter storage_errors;                                  // operations that the store has not done
  Counter replayed_values;                                 // of logs of sessions
  std::array<Counter, kSnapshotReasons.size()> snapshots;  // by SnapshotReason
  std::array<Counter, kCodes>
      tokens;  // state tokens that calls brought, by the code of opening them
};

class KeptSessions;

struct ServerContext {
  // Both references outlive the context.
  explicit ServerContext(const EventLog& event_log, const Clock& the_clock = real_clock(),
                         int64_t call_bytes = limits::kCallBytes.default_value)
      : log(event_log), clock(the_clock), mishaps(event_log, the_clock), memory(call_bytes) {}

  // How text in a call becomes values of `model`, for which the caller asked by this name.
  TextInput text_input(const ServedModel& model, const std::string& asked) const {
    return {.model = name_for(asked, model),
            .tokenizer = model.tokenizer,
            .at_most = text_bytes,
            .unix_time = clock.unix_time()};
  }

  const EventLog& log;
  const Clock& clock;
  Mishaps mishaps;           // on the threads that calls share
  bool access_log = true;    // a line for each call that has ended
  std::string version = {};  // of the program, for the metrics
  ServerMetrics metrics;
  MemoryBudget memory;  // of all calls
  Delivery delivery;    // of calls that do not ask otherwise
  // How long calls that do not say wait for a state, by gRPC and by HTTP.
  Duration queue_time{}, http_queue_time{};
  int64_t text_bytes = 0;  // of one prompt or chunk, at most
  // What one call may ask for at most, as the engines have it.
  int64_t samples = limits::kSamples.default_value;
  int64_t max_values = limits::kMaxValues.default_value;
  // For an answer to a conversation, where the call does not say.
  int64_t chat_values = limits::kChatValues.default_value;
  Duration stall_timeout{};  // a client that sends nothing for so long, or takes nothing for twice
                             // as long, is ended
  std::optional<SealKeys> seal_keys;  // seal state files, and are asked of those that come
  int64_t token_bytes = limits::kTokenBytes.default_value;  // of a state that leaves as a token
  Duration token_ttl = std::chrono::milliseconds(limits::kTokenTtlMs.default_value);
  std::shared_ptr<KeptSessions> kept;  // null: sessions end with the process; ends after the models
  Callers callers;
  ServedModels models;
  LiveCalls calls;
  AskReload reload;  // set before the first call; empty: this server's models stay as they are
  std::atomic<bool> draining{false};  // before any engine does; for calls that name none yet
  TaskThread writer{
      &mishaps};  // writes what the schedulers have made; at most one task for each live call
  FairThread reader{&mishaps};  // reads long bodies and messages; at most one for each call
};

}  // namespace runnel
