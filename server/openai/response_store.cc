#include "server/openai/response_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace runnel {
namespace {

constexpr int64_t kEntryBytes = 1 << 10;  // of a response without its text

}  // namespace

void ResponseStore::put(const std::string& owner, const std::string& id, StoredResponse response,
                        TimePoint now) {
  const int64_t bytes = kEntryBytes + std::ssize(owner) + std::ssize(response.messages) +
                        std::ssize(response.response);
  const int64_t most = memory_.size() / kShare;
  if (bytes > most) return;
  std::lock_guard lock(mutex_);
  drop_idle(now);
  while (bytes_ + bytes > most) {
    if (!drop_one()) return;
  }
  auto hold = memory_.take(bytes);
  if (!hold.ok()) return;
  Owned& owned = owners_[owner];
  owned.entries.push_front(std::make_shared<Entry>(id, std::move(response), std::move(*hold), now));
  owned.bytes += bytes;
  bytes_ += bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& owner,
                                                          const std::string& id, TimePoint now) {
  std::lock_guard lock(mutex_);
  drop_idle(now);
  const auto owned = owners_.find(owner);
  if (owned == owners_.end()) return nullptr;
  auto& entries = owned->second.entries;
  const auto entry = entry_of(owned->second, id);
  if (entry == entries.end()) return nullptr;
  (*entry)->used = now;
  entries.splice(entries.begin(), entries, entry);
  return {*entry, &(*entry)->response};
}

bool ResponseStore::erase(const std::string& owner, const std::string& id, TimePoint now) {
  std::lock_guard lock(mutex_);
  drop_idle(now);
  const auto owned = owners_.find(owner);
  if (owned == owners_.end()) return false;
  const auto entry = entry_of(owned->second, id);
  if (entry == owned->second.entries.end()) return false;
  drop(owned, entry);
  return true;
}

std::list<std::shared_ptr<ResponseStore::Entry>>::iterator ResponseStore::entry_of(
    Owned& owned, const std::string& id) {
  return std::ranges::find_if(owned.entries, [&](const auto& entry) { return entry->id == id; });
}

void ResponseStore::drop_idle(TimePoint now) {
  const TimePoint oldest = now - kIdle;
  for (auto owner = owners_.begin(); owner != owners_.end();) {
    const auto next = std::next(owner);
    for (size_t left = owner->second.entries.size(); left > 0; --left) {
      const auto last = std::prev(owner->second.entries.end());
      if ((*last)->used > oldest) break;
      drop(owner, last);
    }
    owner = next;
  }
}

// Evicts the least recently used response of the owner with the most bytes. Returns false if there
// is no owner.
bool ResponseStore::drop_one() {
  const auto most = std::ranges::max_element(
      owners_, {}, [](const Owners::value_type& owner) { return owner.second.bytes; });
  if (most == owners_.end()) return false;
  drop(most, std::prev(most->second.entries.end()));
  return true;
}

// Dropping an owner's last response drops the owner, too.
void ResponseStore::drop(Owners::iterator owner,
                         std::list<std::shared_ptr<Entry>>::iterator entry) {
  const int64_t bytes = (*entry)->hold.bytes();
  owner->second.bytes -= bytes;
  bytes_ -= bytes;
  owner->second.entries.erase(entry);
  if (owner->second.entries.empty()) owners_.erase(owner);
}

}  // namespace runnel
