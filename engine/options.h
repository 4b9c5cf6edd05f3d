// The settings of one engine. The limits of a step (rows, values, steps in a launch) are settings
// of the model (ModelLimits).
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
  // How many positions back sessions can be rewound, and the number of values between snapshots.
  // 0: sessions cannot be rewound.
  int64_t rewind_values = 0;
  int64_t rewind_every = 0;
  // The most bytes of states that are kept in free slots for prompts that begin alike. 0: none.
  int64_t prefix_cache_bytes = 0;
  // Prefixes with fewer values are not kept: reading the values again is as fast as copying a
  // state.
  int64_t prefix_least = 16;
  Duration stall_timeout = std::chrono::milliseconds(limits::kStallTimeoutMs.default_value);
  Duration idle_timeout = std::chrono::milliseconds(limits::kIdleTimeoutMs.default_value);
  // The factor by which prompts may lengthen a step that also has decoding rows. 0: no limit.
  int64_t prompt_slowdown = 0;
  // Whether the engine's own thread computes steps. It then runs with a low priority.
  bool computes = false;
};

}  // namespace runnel
