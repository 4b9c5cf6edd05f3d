#include "engine/prefix_cache.h"

#include <algorithm>
#include <random>
#include <tuple>

#include "base/check.h"

namespace runnel {
namespace {

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

// a * b + c modulo kPrime; all of them are smaller.
uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c) {
  __extension__ using Wide = unsigned __int128;
  const Wide sum = static_cast<Wide>(a) * b + c;
  const uint64_t folded = static_cast<uint64_t>(sum & kPrime) + static_cast<uint64_t>(sum >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

uint64_t random_factor() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return 2 + bits % (kPrime - 2);
}

}  // namespace

PrefixCache::PrefixCache(int64_t most)
    : most_(std::min(most, kMostStates)), factors_{random_factor(), random_factor()} {
  entries_.reserve(static_cast<size_t>(most_));
}

PrefixKey PrefixCache::begin(const std::string& owner) {
  const auto [entry, is_new] = owners_.try_emplace(owner, static_cast<int>(owners_.size()));
  return {.owner = entry->second, .length = 0, .digest = {1, 1}};
}

void PrefixCache::extend(PrefixKey& key, std::span<const int32_t> values) const {
  for (const int32_t value : values) {
    for (size_t i = 0; i < factors_.size(); ++i) {
      key.digest[i] = multiply_add(key.digest[i], factors_[i], static_cast<uint64_t>(value));
    }
  }
  key.length += std::ssize(values);
}

std::optional<PrefixKey> PrefixCache::find(PrefixKey key, std::span<const int32_t> values) const {
  std::optional<PrefixKey> longest;
  const int64_t before = key.length;
  const int owner = key.owner;
  auto entry = std::ranges::lower_bound(entries_, PrefixKey{owner, before, {}}, {}, &Entry::key);
  for (; entry != entries_.end() && entry->key.owner == owner; ++entry) {
    const int64_t to = entry->key.length - before;
    if (to >= std::ssize(values)) break;
    extend(key, values.subspan(static_cast<size_t>(key.length - before),
                               static_cast<size_t>(entry->key.length - key.length)));
    if (entry->key == key) longest = key;
  }
  return longest;
}

PrefixCache::Entries::iterator PrefixCache::place_of(const PrefixKey& key) {
  return std::ranges::lower_bound(entries_, key, {}, &Entry::key);
}

std::optional<SlotId> PrefixCache::use(const PrefixKey& key, TimePoint now) {
  const auto entry = place_of(key);
  if (entry == entries_.end() || entry->key != key) return std::nullopt;
  entry->turn = ++turn_;
  entry->used = now;
  entry->worth = PrefixWorth::kFound;
  return entry->slot;
}

void PrefixCache::add(const PrefixKey& key, SlotId slot, TimePoint now, PrefixWorth worth) {
  check(!full(), "the prefix cache has room for a state");
  const auto place = place_of(key);
  check(place == entries_.end() || place->key != key, "a prefix is kept once");
  entries_.insert(place, {.key = key, .slot = slot, .turn = ++turn_, .used = now, .worth = worth});
  size_.store(std::ssize(entries_), std::memory_order_relaxed);
}

SlotId PrefixCache::remove(Entries::iterator entry) {
  const SlotId slot = entry->slot;
  entries_.erase(entry);
  size_.store(std::ssize(entries_), std::memory_order_relaxed);
  return slot;
}

std::optional<SlotId> PrefixCache::surrender() {
  if (entries_.empty()) return std::nullopt;
  const auto found = std::ranges::count(entries_, PrefixWorth::kFound, &Entry::worth);
  const bool many = 2 * found > std::ssize(entries_);
  return remove(std::ranges::min_element(entries_, {}, [&](const Entry& entry) {
    return std::tuple(many ? PrefixWorth::kFound : entry.worth, entry.turn);
  }));
}

std::optional<SlotId> PrefixCache::expire(TimePoint since) {
  const auto entry = std::ranges::min_element(entries_, {}, &Entry::turn);
  if (entry == entries_.end() || entry->used >= since) return std::nullopt;
  return remove(entry);
}

}  // namespace runnel
