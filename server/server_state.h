// What every call of one server shares.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/request.h"
#include "server/event_log.h"
#include "server/live_calls.h"
#include "server/served_models.h"
#include "server/task_thread.h"

namespace runnel {

struct ServerState {
  explicit ServerState(const EventLog& event_log) : log(event_log) {}

  const EventLog& log;
  Delivery delivery;         // of calls that do not ask otherwise
  int64_t text_bytes = 0;    // of one prompt or chunk, at most
  Duration stall_timeout{};  // for which a Score call may keep its state without a chunk
  ServedModels models;
  LiveCalls calls;
  std::atomic<bool> draining{false};  // before any engine does; for calls that name none yet
  TaskThread writer;  // writes what the schedulers have made; at most one task for each live call
};

}  // namespace runnel
