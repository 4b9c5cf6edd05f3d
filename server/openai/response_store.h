// Stores responses as text, for later requests that continue or read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "server/host/memory_budget.h"

namespace runnel {

struct StoredResponse {
  std::string messages;  // a JSON list: the conversation before the answer, without instructions
  std::string response;  // a JSON object: the answer
};

// Any thread may call any function. `now` must never decrease.
class ResponseStore {
 public:
  // A response that nobody uses for this long is evicted.
  static constexpr Duration kIdle = std::chrono::hours(1);
  // The store holds at most 1 / kShare of the memory of all calls.
  static constexpr int64_t kShare = 8;

  // `memory` must outlive the store.
  explicit ResponseStore(MemoryBudget& memory) : memory_(memory) {}

  // Keeps a response of an owner. To make room, it evicts the least recently used response of the
  // owner with the most bytes, repeatedly. A response that is longer than the store's share, or for
  // which the calls leave no room, is not kept.
  void put(const std::string& owner, const std::string& id, StoredResponse response, TimePoint now);
  // Null if the owner has no response of this id, or if it was evicted.
  std::shared_ptr<const StoredResponse> find(const std::string& owner, const std::string& id,
                                             TimePoint now);
  // False if find() would return null.
  bool erase(const std::string& owner, const std::string& id, TimePoint now);

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    MemoryBudget::Hold hold;
    TimePoint used;
  };
  struct Owned {
    std::list<std::shared_ptr<Entry>> entries;  // most recently used first
    int64_t bytes = 0;
  };
  using Owners = std::map<std::string, Owned>;

  static std::list<std::shared_ptr<Entry>>::iterator entry_of(Owned& owned, const std::string& id);
  void drop_idle(TimePoint now);
  bool drop_one();
  void drop(Owners::iterator owner, std::list<std::shared_ptr<Entry>>::iterator entry);

  MemoryBudget& memory_;
  std::mutex mutex_;
  Owners owners_;
  int64_t bytes_ = 0;
};

}  // namespace runnel
