// A store in the memory of the process, for tests.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/store.h"

namespace runnel {

// The sessions that several MemoryStores share.
struct MemoryShelf {
  struct Entry {
    Record record;
    std::string state;
  };

  std::mutex mutex;
  std::map<std::string, Entry> entries;  // by key
  bool needs_seals = false;              // Store::needs_seals() of later MemoryStores
};

class MemoryStore final : public Store {
 public:
  // `clock` must outlive the store.
  MemoryStore(std::shared_ptr<MemoryShelf> shelf, const StoreTimes& times, const Clock& clock);

  const std::string& replica() const override { return replica_; }
  bool needs_seals() const override { return needs_seals_; }
  Result<Begun> begin(const std::string& key, const Claim& claim) override;
  Result<std::optional<Record>> look(const std::string& key) override;
  Status load(const std::string& key, const Record& record, const StateSink& sink) override;
  Result<bool> renew(const std::string& key, const Holder& holder) override;
  Result<bool> end(const std::string& key, const Holder& holder, const Snapshot* snapshot) override;
  Result<bool> log(const std::string& key, const Holder& holder, const LogEntry& entry) override;
  Result<bool> settle(const std::string& key, int64_t saved, const Snapshot& snapshot) override;
  Result<int64_t> create(const std::string& key, const NewSession& session,
                         const Snapshot* snapshot) override;
  Result<bool> remove(const std::string& key) override;
  Result<std::vector<std::string>> list(const std::string& list, const std::string& after,
                                        size_t most) override;
  Status sweep() override { return {}; }
  Status sync() override { return {}; }

 private:
  MemoryShelf::Entry* find(const std::string& key);

  const std::shared_ptr<MemoryShelf> shelf_;
  const StoreTimes times_;
  const Clock& clock_;
  const std::string replica_;
  const bool needs_seals_;
};

}  // namespace runnel
