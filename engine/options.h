// The settings of one engine. Those of a step (rows, values, steps in a launch) are the model's:
// ModelLimits.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace runnel {

struct EngineOptions {
  int64_t mailbox = limits::kMailbox.default_value;
  int64_t mailbox_bytes = limits::kMailboxBytes.default_value;
  int64_t queue = limits::kQueue.default_value;
  int64_t queue_bytes = limits::kQueueBytes.default_value;
  int64_t sessions_per_caller = limits::kSessionsPerCaller.default_value;  // 0: all
  int64_t record_bytes = limits::kRecordBytes.default_value;               // of each session
  int64_t stream_room = limits::kStreamRoom.default_value;
  int64_t samples = limits::kSamples.default_value;
  int64_t prompt_values = limits::kPromptValues.default_value;
  int64_t max_values = limits::kMaxValues.default_value;
  // Sessions can be rewound to their last positions, so many; 0: they cannot. Snapshots stand so
  // many values apart.
  int64_t rewind_values = 0;
  int64_t rewind_every = 0;
  // Of states that are kept for prompts that begin alike, in slots that are free; 0: none are.
  int64_t prefix_cache_bytes = 0;
  // Fewer values than this are read again as fast as a state is copied, so none is kept after them.
  int64_t prefix_least = 16;
  Duration stall_timeout = std::chrono::milliseconds(limits::kStallTimeoutMs.default_value);
  Duration idle_timeout = std::chrono::milliseconds(limits::kIdleTimeoutMs.default_value);
  // The most times as long that a step with prompts takes, where others' values wait
  // for it; 0: as long as it takes.
  int64_t prompt_slowdown = 0;
  // The engine's own thread takes part in computing the steps, and lets other threads go first.
  bool computes = false;
};

}  // namespace runnel
