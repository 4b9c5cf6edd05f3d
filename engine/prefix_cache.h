// The states of beginnings of prompts, so that a prompt that begins like an earlier one is read
// from there on. Each lies in a slot of the model that counts as free: it is given up as soon as a
// session needs the slot. Only an index: its owner leases slots and copies states.
//
// A state is found by its owner's name and by the digest of the values that it has consumed. The
// digest is a polynomial over two primes' fields with random coefficients, so that one value more
// costs two products. Two different prefixes of a million values have the same digest with a
// probability below 2^-80, whoever chooses them.
//
// Programs that chat make titles and tags by calls of their own, which share nothing with the
// conversation and never come again. So that these do not displace it, the states of conversations
// that have continued are given up last, as long as they are no more than half. Where they are
// more, the state that was used longest ago goes, whatever it is.
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

// Names the first `length` values of a sequence of an owner's.
struct PrefixKey {
  int owner = 0;
  int64_t length = 0;
  std::array<uint64_t, 2> digest{};

  friend auto operator<=>(const PrefixKey&, const PrefixKey&) = default;
};

// The kinds of states. States of the first kind are given up first.
enum class PrefixWorth : uint8_t {
  kAnswer,  // after an answer: the state in the call's prompt is not far before it
  kPrompt,  // in a prompt
  kFound    // a prompt began at this state, or at an earlier one of the same sequence
};

class PrefixCache {
 public:
  // Of at most `most` states, and kMostStates; 0: none are kept.
  explicit PrefixCache(int64_t most);

  static constexpr int64_t kMostStates = 4096;

  bool on() const { return most_ > 0; }
  bool full() const { return size() == most_; }
  // From any thread: states that are kept.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }

  // --- The scheduler's thread ---

  // The key of an empty sequence of the owner's. Allocates the first time that it sees the name.
  PrefixKey begin(const std::string& owner);
  // Adds values that come after those of the key.
  void extend(PrefixKey& key, std::span<const int32_t> values) const;

  // The longest kept prefix of `key` and `values` after it that leaves one of `values` to be read.
  std::optional<PrefixKey> find(PrefixKey key, std::span<const int32_t> values) const;
  // The slot of a kept state, which then counts as used and found; none: it is not kept.
  std::optional<SlotId> use(const PrefixKey& key, TimePoint now);
  // Keeps the state in `slot`. The key is not kept yet, and the cache is not full.
  void add(const PrefixKey& key, SlotId slot, TimePoint now,
           PrefixWorth worth = PrefixWorth::kPrompt);
  // Gives up the state that was used longest ago, among those of the least worth unless more than
  // half are found ones. Returns its slot; none: the cache is empty.
  std::optional<SlotId> surrender();
  // Gives up the state that was used longest ago, if that was before `since`.
  std::optional<SlotId> expire(TimePoint since);

 private:
  struct Entry {
    PrefixKey key;
    SlotId slot = -1;
    uint64_t turn = 0;  // of its last use
    TimePoint used{};   // likewise
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
