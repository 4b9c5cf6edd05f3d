// An index of kept states of prompts. A prompt with the prefix of an earlier one is read only from
// the end of the kept prefix. Each state is in a slot of the model that counts as free, and is
// evicted as soon as a session needs the slot. The cache is only the index: its owner leases slots
// and copies states.
//
// A state is found by its owner's name and by a digest of the values that it has consumed. The
// digest is a polynomial over two prime fields with random coefficients, so that adding a value
// costs two multiplications. Two different prefixes of a million values have the same digest with a
// probability below 2^-80, even if an attacker chooses them.
//
// Chat programs make titles and tags with separate calls, whose prompts share nothing with the
// conversation and never come again. Their states must not displace the conversation. So states
// from which a later prompt continued are evicted last, while they are at most half of all states.
// If they are more, the least recently used state of any kind is evicted.
//
// All memory is allocated at construction, except for the names of owners in begin().
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace runnel {

// Names the first `length` values of an owner's sequence.
struct PrefixKey {
  int owner = 0;
  int64_t length = 0;
  std::array<uint64_t, 2> digest{};

  friend auto operator<=>(const PrefixKey&, const PrefixKey&) = default;
};

// The kinds of states. States of the first kind are evicted first.
enum class PrefixWorth : uint8_t {
  kAnswer,  // kept after an answer, not long after a state kept in the prompt
  kPrompt,  // kept in a prompt
  kFound    // a prompt began at this state, or at an earlier state of the same sequence
};

class PrefixCache {
 public:
  // Keeps at most `most` states, and never more than kMostStates. 0: no states are kept.
  explicit PrefixCache(int64_t most);

  static constexpr int64_t kMostStates = 4096;

  bool on() const { return most_ > 0; }
  bool full() const { return size() == most_; }
  // The number of states that are kept. Any thread may call this.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }

  // --- The scheduler's thread ---

  // The key of an empty sequence of the owner. Allocates only if the name is new.
  PrefixKey begin(const std::string& owner);
  // Appends values to the sequence of the key.
  void extend(PrefixKey& key, std::span<const int32_t> values) const;

  // The longest kept prefix of the key's sequence followed by `values`. At least one of `values` is
  // left to be read.
  std::optional<PrefixKey> find(PrefixKey key, std::span<const int32_t> values) const;
  // The slot of a kept state, whose worth becomes kFound. None: the state is not kept.
  std::optional<SlotId> use(const PrefixKey& key, TimePoint now);
  // Keeps the state in `slot`. The key must not be kept yet, and the cache must not be full.
  void add(const PrefixKey& key, SlotId slot, TimePoint now,
           PrefixWorth worth = PrefixWorth::kPrompt);
  // Evicts the least recently used of the states with the lowest worth. If more than half of all
  // states are kFound, the worth does not matter. Returns the slot; none: the cache is empty.
  std::optional<SlotId> surrender();
  // Evicts the least recently used state, if it was last used before `since`.
  std::optional<SlotId> expire(TimePoint since);

 private:
  struct Entry {
    PrefixKey key;
    SlotId slot = -1;
    uint64_t turn = 0;  // the number of its last use
    TimePoint used{};   // the time of its last use
    PrefixWorth worth = PrefixWorth::kPrompt;
  };
  using Entries = std::vector<Entry>;

  Entries::iterator place_of(const PrefixKey& key);
  SlotId remove(Entries::iterator entry);

  const int64_t most_;
  const std::array<uint64_t, 2> factors_;
  std::map<std::string, int> owners_;
  Entries entries_;  // by key
  uint64_t turn_ = 0;
  std::atomic<int64_t> size_{0};  // of entries_
};

}  // namespace runnel
