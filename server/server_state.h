// What every call of one server shares.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/limits.h"
#include "base/metrics.h"
#include "engine/request.h"
#include "models/state/seal.h"
#include "server/call_metrics.h"
#include "server/callers.h"
#include "server/event_log.h"
#include "server/live_calls.h"
#include "server/memory_budget.h"
#include "server/reload_report.h"
#include "server/served_models.h"
#include "server/task_thread.h"
#include "server/text_input.h"

namespace runnel {

// What is counted of no model in particular.
struct ServerMetrics {
  CallMetrics calls;       // that came to no model
  Counter received, sent;  // bytes of messages
};

struct ServerState {
  explicit ServerState(const EventLog& event_log,
                       int64_t call_bytes = limits::kCallBytes.default_value)
      : log(event_log), memory(call_bytes) {}

  // How text in a call becomes values of `model`.
  TextInput text_input(const ServedModel& model) const {
    return {.model = model.name, .tokenizer = model.tokenizer, .at_most = text_bytes};
  }

  const EventLog& log;
  bool access_log = true;    // a line for each call that has ended
  std::string version = {};  // of the program, for the metrics
  ServerMetrics metrics;
  MemoryBudget memory;       // of all calls
  Delivery delivery;         // of calls that do not ask otherwise
  int64_t text_bytes = 0;    // of one prompt or chunk, at most
  Duration stall_timeout{};  // a client that sends nothing for so long, or takes nothing for twice
                             // as long, is ended
  std::optional<SealKey> seal_key;  // seals state files, and is asked of those that come
  Callers callers;
  ServedModels models;
  LiveCalls calls;
  AskReload reload;  // set before the first call; empty: this server's models stay as they are
  std::atomic<bool> draining{false};  // before any engine does; for calls that name none yet
  TaskThread writer;  // writes what the schedulers have made; at most one task for each live call
};

}  // namespace runnel
