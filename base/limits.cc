#include "base/limits.h"

#include <array>

#include "base/chat_limits.h"
#include "base/prefix_limits.h"
#include "base/stop_limits.h"
#include "base/token_limits.h"

namespace runnel {

std::span<const Limit* const> all_limits() {
  static constexpr std::array kAll = {
      &limits::kSessions,
      &limits::kSessionsPerCaller,
      &limits::kBatchRows,
      &limits::kBatchValues,
      &limits::kMailbox,
      &limits::kMailboxBytes,
      &limits::kQueue,
      &limits::kQueueBytes,
      &limits::kStreamRoom,
      &limits::kStepsPerLaunch,
      &limits::kSamples,
      &limits::kPromptValues,
      &limits::kPromptSlowdown,
      &limits::kTextBytes,
      &limits::kRecentValues,
      &limits::kMaxValues,
      &limits::kChatValues,
      &limits::kMessageBytes,
      &limits::kDeliveryValues,
      &limits::kDeliveryDelayMs,
      &limits::kStallTimeoutMs,
      &limits::kIdleTimeoutMs,
      &limits::kLameDuckMs,
      &limits::kGraceMs,
      &limits::kStreamsPerConnection,
      &limits::kConnections,
      &limits::kConnectionAgeMs,
      &limits::kNetworkBytes,
      &limits::kCallBytes,
      &limits::kRecordBytes,
      &limits::kTokenBytes,
      &limits::kTokenTtlMs,
      &limits::kPrefixCacheBytes,
  };
  return kAll;
}

}  // namespace runnel
