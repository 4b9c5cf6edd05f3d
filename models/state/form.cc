#include "models/state/form.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace runnel {
namespace {

constexpr int64_t kBlockBytes = 4096;

// The bits of a type of numbers.
struct Fp32 {
  using Bits = int32_t;
  static constexpr int32_t kMagnitude = 0x7fffffff;
  static constexpr int32_t kInfinite = 0x7f800000;  // magnitudes from this on: infinities and NaN
  static constexpr int32_t kLeastNormal = 0x00800000;  // smaller magnitudes: subnormal or zero
};
struct Bf16 {
  using Bits = int16_t;
  static constexpr int32_t kMagnitude = 0x7fff;
  static constexpr int32_t kInfinite = 0x7f80;
  static constexpr int32_t kLeastNormal = 0x0080;
};

int64_t travelling_pages(const StateLayout& layout, int64_t consumed) {
  const int64_t within = std::min(consumed, layout.positions);
  return std::max<int64_t>(StateLayout::pages_of(within), 1);
}

bool is_log(const StatePart& part) { return part.name.ends_with(".log"); }
bool is_recent(const StatePart& part) { return part.name == kRecentPart; }

float number_at(const std::byte* at, int64_t index) {
  float number = 0;
  std::memcpy(&number, at + index * 4, sizeof(number));
  return number;
}

void set_number(std::byte* at, int64_t index, float number) {
  std::memcpy(at + index * 4, &number, sizeof(number));
}

// One entry of a head's log, {phi(k) [dk], v [dv]}: z += phi(k), S += phi(k) v^T.
void fold_entry(const std::byte* entry, int64_t dk, int64_t dv, std::byte* s, std::byte* z) {
  for (int64_t i = 0; i < dk; ++i) {
    const float key = number_at(entry, i);
    set_number(z, i, number_at(z, i) + key);
    for (int64_t j = 0; j < dv; ++j) {
      const int64_t at = i * dv + j;
      set_number(s, at, std::fma(key, number_at(entry, dk + j), number_at(s, at)));
    }
  }
}

template <typename Type>
int32_t magnitude_at(std::span<const std::byte> numbers, size_t at) {
  typename Type::Bits bits = 0;
  std::memcpy(&bits, numbers.data() + at, sizeof(bits));
  return bits & Type::kMagnitude;
}

template <typename Type>
bool is_subnormal(int32_t magnitude) {
  return (magnitude > 0) & (magnitude < Type::kLeastNormal);
}

// The loop has no branches and no stores, and uses only 32-bit numbers, so that compilers vectorize
// it.
template <typename Type>
PartNumbers look_at(std::span<const std::byte> numbers) {
  int32_t infinite = 0;
  int32_t subnormal = 0;
  for (size_t at = 0; at < numbers.size(); at += sizeof(typename Type::Bits)) {
    const int32_t magnitude = magnitude_at<Type>(numbers, at);
    infinite |= static_cast<int32_t>(magnitude >= Type::kInfinite);
    subnormal += static_cast<int32_t>(is_subnormal<Type>(magnitude));
  }
  return {.finite = infinite == 0, .subnormal = subnormal};
}

template <typename Type>
void flush(std::span<std::byte> numbers) {
  constexpr size_t kBytes = sizeof(typename Type::Bits);
  for (size_t at = 0; at < numbers.size(); at += kBytes) {
    if (is_subnormal<Type>(magnitude_at<Type>(numbers, at))) {
      std::memset(numbers.data() + at, 0, kBytes);
    }
  }
}

template <typename Type>
PartNumbers examine(const StatePart& part, std::span<std::byte> state, bool flushes) {
  PartNumbers found;
  PartWalk walk(part, state);
  for (auto block = walk.next(kBlockBytes); !block.empty(); block = walk.next(kBlockBytes)) {
    const PartNumbers here = look_at<Type>(block);
    if (flushes && here.subnormal > 0) flush<Type>(block);
    found.subnormal += here.subnormal;
    found.finite = found.finite && here.finite;
  }
  return found;
}

PartNumbers examine(const StatePart& part, std::span<std::byte> state, bool flushes) {
  if (part.type == DType::kF32) return examine<Fp32>(part, state, flushes);
  if (part.type == DType::kBF16) return examine<Bf16>(part, state, flushes);
  return {};
}

}  // namespace

std::vector<StatePart> travelling_parts(const StateLayout& layout, int64_t consumed) {
  std::vector<StatePart> parts = layout.parts;
  std::erase_if(parts, [](const StatePart& part) { return is_log(part) || is_recent(part); });
  for (StatePart& part : parts) {
    if (part.paged) part.shape[0] = travelling_pages(layout, consumed);
  }
  return parts;
}

void clear_unused(const StateLayout& layout, int64_t consumed, std::span<std::byte> state) {
  const int64_t page = travelling_pages(layout, consumed) - 1;
  const int64_t used = consumed - page * kPagePositions;
  for (const StatePart& part : layout.parts) {
    if (!part.paged || used == kPagePositions) continue;
    std::byte* const bytes = state.data() + part.offset + page * part.stride;
    const int64_t size = element_bytes(part.type);
    // Keys are [heads][dk][positions], values [heads][positions][dv].
    const bool keys = part.name.ends_with(".keys");
    const int64_t runs = part.shape[1] * (keys ? part.shape[2] : 1);
    const int64_t each = keys ? size : size * part.shape[3];
    for (int64_t run = 0; run < runs; ++run) {
      std::byte* const positions = bytes + run * kPagePositions * each;
      std::memset(positions + used * each, 0, static_cast<size_t>((kPagePositions - used) * each));
    }
  }
}

std::vector<int32_t> recent_values(const StateLayout& layout, int64_t position,
                                   std::span<const std::byte> state) {
  if (layout.recent == 0) return {};
  std::vector<int32_t> entries(static_cast<size_t>(layout.recent));
  std::memcpy(entries.data(), state.data() + layout.recent_offset,
              entries.size() * sizeof(int32_t));
  std::vector<int32_t> values;
  const RecentRing ring = {entries.data(), layout.recent};
  ring.before(position, [&](int64_t, int32_t value) { values.push_back(value); });
  return values;
}

void set_recent_values(const StateLayout& layout, int64_t position, std::span<const int32_t> values,
                       std::span<std::byte> state) {
  if (layout.recent == 0) return;
  std::vector<int32_t> entries(static_cast<size_t>(layout.recent));
  const RecentRing ring = {entries.data(), layout.recent};
  int64_t at = position - std::ssize(values);
  for (const int32_t value : values) ring.note(at++, value);
  std::memcpy(state.data() + layout.recent_offset, entries.data(),
              entries.size() * sizeof(int32_t));
}

int64_t bytes_of(const StatePart& part) { return part.shape[0] * part.entry_bytes(); }

void fold_logs(const StateLayout& layout, int64_t consumed, std::span<std::byte> state) {
  for (size_t i = 0; i < layout.parts.size(); ++i) {
    const StatePart& log = layout.parts[i];
    if (!is_log(log)) continue;
    check(i >= 2, "a log stands behind S and z of its layer");
    const StatePart& s = layout.parts[i - 2];
    const StatePart& z = layout.parts[i - 1];
    const int64_t dk = s.shape[1];
    const int64_t dv = s.shape[2];
    const int64_t logged = consumed % (log.shape[1] + 1);
    for (int64_t head = 0; head < log.shape[0]; ++head) {
      const std::byte* const entries = state.data() + log.offset + head * log.stride;
      for (int64_t entry = 0; entry < logged; ++entry) {
        fold_entry(entries + entry * log.shape[2] * 4, dk, dv,
                   state.data() + s.offset + head * s.stride,
                   state.data() + z.offset + head * z.stride);
      }
    }
  }
}

std::span<std::byte> PartWalk::next(int64_t most) {
  if (entry_ == part_.shape[0]) return {};
  const int64_t count = std::min(most, part_.entry_bytes() - at_);
  const int64_t from = part_.offset + entry_ * part_.stride + at_;
  at_ += count;
  if (at_ == part_.entry_bytes()) {
    at_ = 0;
    ++entry_;
  }
  return state_.subspan(static_cast<size_t>(from), static_cast<size_t>(count));
}

PartNumbers flush_subnormals(const StatePart& part, std::span<std::byte> state) {
  return examine(part, state, true);
}

PartNumbers examine_numbers(const StatePart& part, std::span<std::byte> state) {
  return examine(part, state, false);
}

}  // namespace runnel
