#include "storage/memory_store.h"

#include <utility>

#include "base/hex.h"
#include "storage/open_store.h"

namespace runnel {
namespace {

std::string whole(const Snapshot& snapshot) {
  std::string state;
  for (std::string piece = snapshot.next(); !piece.empty(); piece = snapshot.next()) state += piece;
  return state;
}

void put(MemoryShelf::Entry& entry, int64_t position, std::string state) {
  put_state(entry.record, entry.record.saved, position, tail_of(state));
  entry.state = std::move(state);
}

}  // namespace

MemoryStore::MemoryStore(std::shared_ptr<MemoryShelf> shelf, const StoreTimes& times,
                         const Clock& clock)
    : shelf_(std::move(shelf)),
      times_(times),
      clock_(clock),
      replica_(new_replica()),
      needs_seals_(shelf_->needs_seals) {}

// With the lock held.
MemoryShelf::Entry* MemoryStore::find(const std::string& key) {
  const auto found = shelf_->entries.find(key);
  if (found == shelf_->entries.end()) return nullptr;
  if (!has_expired(found->second.record, clock_.unix_ms(), times_.ttl_ms)) return &found->second;
  shelf_->entries.erase(found);
  return nullptr;
}

Result<Begun> MemoryStore::begin(const std::string& key, const Claim& claim) {
  std::lock_guard lock(shelf_->mutex);
  MemoryShelf::Entry* const entry = find(key);
  if (entry == nullptr) return Begun();
  const bool ours = entry->record.owner.starts_with(replica_ + "/");
  return begin_record(entry->record, claim, clock_.unix_ms(), times_.lease_ms, ours);
}

Result<std::optional<Record>> MemoryStore::look(const std::string& key) {
  std::lock_guard lock(shelf_->mutex);
  const MemoryShelf::Entry* const entry = find(key);
  return entry == nullptr ? std::optional<Record>() : entry->record;
}

Status MemoryStore::load(const std::string& key, const Record& record, const StateSink& sink) {
  std::string state;
  {
    std::lock_guard lock(shelf_->mutex);
    const MemoryShelf::Entry* const entry = find(key);
    if (entry == nullptr || entry->record.state != record.state) return state_replaced();
    state = entry->state;
  }
  return sink(std::as_bytes(std::span(state)));
}

Result<bool> MemoryStore::renew(const std::string& key, const Holder& holder) {
  std::lock_guard lock(shelf_->mutex);
  MemoryShelf::Entry* const entry = find(key);
  return entry != nullptr && renew_record(entry->record, holder, clock_.unix_ms(), times_.lease_ms);
}

Result<bool> MemoryStore::end(const std::string& key, const Holder& holder,
                              const Snapshot* snapshot) {
  std::string state = snapshot == nullptr ? "" : whole(*snapshot);
  std::lock_guard lock(shelf_->mutex);
  MemoryShelf::Entry* const entry = find(key);
  if (entry == nullptr || !end_record(entry->record, holder, clock_.unix_ms(), snapshot != nullptr))
    return false;
  if (snapshot != nullptr) put(*entry, snapshot->position, std::move(state));
  return true;
}

Result<bool> MemoryStore::log(const std::string& key, const Holder& holder, const LogEntry& entry) {
  std::lock_guard lock(shelf_->mutex);
  MemoryShelf::Entry* const found = find(key);
  return found != nullptr && log_record(found->record, holder, clock_.unix_ms(), entry);
}

Result<bool> MemoryStore::settle(const std::string& key, int64_t saved, const Snapshot& snapshot) {
  std::string state = whole(snapshot);
  std::lock_guard lock(shelf_->mutex);
  MemoryShelf::Entry* const entry = find(key);
  if (entry == nullptr || !may_settle(entry->record, saved)) return false;
  put(*entry, snapshot.position, std::move(state));
  return true;
}

Result<int64_t> MemoryStore::create(const std::string& key, const NewSession& session,
                                    const Snapshot* snapshot) {
  std::string state = snapshot == nullptr ? "" : whole(*snapshot);
  std::lock_guard lock(shelf_->mutex);
  if (find(key) != nullptr) return 0;
  MemoryShelf::Entry& entry = shelf_->entries[key];
  entry.record = new_record(session, clock_.unix_ms());
  if (snapshot != nullptr) put(entry, snapshot->position, std::move(state));
  return entry.record.epoch;
}

Result<bool> MemoryStore::remove(const std::string& key) {
  std::lock_guard lock(shelf_->mutex);
  return find(key) != nullptr && shelf_->entries.erase(key) == 1;
}

Result<std::vector<std::string>> MemoryStore::list(const std::string& list,
                                                   const std::string& after, size_t most) {
  std::vector<std::string> ids;
  std::lock_guard lock(shelf_->mutex);
  for (const auto& [key, entry] : shelf_->entries) {
    const Record& record = entry.record;
    const bool is_there = !has_expired(record, clock_.unix_ms(), times_.ttl_ms);
    if (is_there && record.list == list && record.id > after) ids.push_back(record.id);
  }
  keep_first(ids, most);
  return ids;
}

}  // namespace runnel
