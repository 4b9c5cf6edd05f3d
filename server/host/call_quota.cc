#include "server/host/call_quota.h"

#include <utility>

#include "engine/account_usage.h"
#include "engine/refusals.h"

namespace runnel {

Status CallQuota::begin(const Caller& caller) {
  const std::optional<int64_t> most = caller.limits.calls;
  if (!most) return {};
  if (!caller.usage->begin_call(*most)) return calls_used_up(caller.account, *most);
  counted_ = caller.usage;
  return {};
}

void CallQuota::end() {
  if (const auto counted = std::exchange(counted_, nullptr)) counted->end_call();
}

}  // namespace runnel
