#include "storage/known_records.h"

#include <new>

namespace runnel {
namespace {

constexpr size_t kBeside = 1 << 10;   // of an entry, besides the texts of its record
constexpr size_t kBytesPerText = 64;  // of an entry of the log, besides its text

}  // namespace

std::optional<KnownRecord> KnownRecords::find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second.known);
}

void KnownRecords::put(const std::string& key, std::string_view version, const Record& record,
                       size_t bytes) {
  std::lock_guard lock(mutex_);
  erase(key);
  const size_t size = bytes + kBytesPerText * record.log.size() + kBeside;
  if (size > kKnownRecordBytes) return;
  if (bytes_ + size > kKnownRecordsBytes) {
    entries_.clear();
    bytes_ = 0;
  }
  try {
    entries_.emplace(key, Entry{{std::string(version), record}, size});
    bytes_ += size;
  } catch (const std::bad_alloc&) {  // the next change reads the record
  }
}

void KnownRecords::forget(const std::string& key) {
  std::lock_guard lock(mutex_);
  erase(key);
}

// With the lock held.
void KnownRecords::erase(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  bytes_ -= found->second.bytes;
  entries_.erase(found);
}

}  // namespace runnel
