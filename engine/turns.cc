#include "engine/turns.h"

namespace runnel {

Turns::Turns(int64_t candidates) { accounts_.reserve(static_cast<size_t>(candidates)); }

std::shared_ptr<AccountTurns> Turns::join(const Caller& caller) {
  const auto [it, is_new] = turns_.try_emplace(caller.account);
  if (is_new) {
    it->second = std::make_shared<AccountTurns>();
    it->second->account = {.served = shares_, .fed = shares_};
  }
  it->second->usage = caller.usage;
  return it->second;
}

void Turns::forget_unused() {
  std::erase_if(turns_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

void Turns::begin_plan() {
  ++plans_;
  accounts_.clear();
  paces_ = false;
}

}  // namespace runnel
