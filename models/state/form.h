// A state as it travels: the same bytes whatever backend has computed it. Its parts follow one
// another without gaps, and hold the numbers of the plain form: a GPU's log of inputs is folded in,
// and of a cache there are only the pages in use, with zeros after the last position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace runnel {

// The parts of a layout that travel after `consumed` inputs, in their order: all but logs and the
// recent values. A cache has its pages up to the last position, and at least one.
std::vector<StatePart> travelling_parts(const StateLayout& layout, int64_t consumed);

// Bytes of a part, without gaps.
int64_t bytes_of(const StatePart& part);

// Brings a state that was read out of a slot after `consumed` values up to the plain form, in
// place, by the additions that a step would have made; where it has no log it is that already.
void fold_logs(const StateLayout& layout, int64_t consumed, std::span<std::byte> state);

// Makes zeros of what the pages that travel hold after the last position, which may be another
// session's.
void clear_unused(const StateLayout& layout, int64_t consumed, std::span<std::byte> state);

// The recent values of a state at `position`, oldest first: those before it that its ring has.
std::vector<int32_t> recent_values(const StateLayout& layout, int64_t position,
                                   std::span<const std::byte> state);

// Puts `values`, the last ones before `position`, into the ring of a state whose ring is empty, as
// many of the last as it has room for.
void set_recent_values(const StateLayout& layout, int64_t position, std::span<const int32_t> values,
                       std::span<std::byte> state);

// Walks the bytes of a part as they travel, and finds where they lie in a state.
class PartWalk {
 public:
  PartWalk(const StatePart& part, std::span<std::byte> state) : part_(part), state_(state) {}

  // The next bytes that lie together, at most `most`; empty at the end.
  std::span<std::byte> next(int64_t most);

 private:
  const StatePart& part_;
  const std::span<std::byte> state_;
  int64_t entry_ = 0;  // of the first dimension
  int64_t at_ = 0;     // in that entry
};

// What flush_subnormals() has found in a part.
struct PartNumbers {
  bool finite = true;
  int64_t subnormal = 0;
};

// Looks at every number of a part of fp32 or bf16, and in fp32 makes zeros of those too small for
// full precision: they would cost a step many times what others do.
PartNumbers flush_subnormals(const StatePart& part, std::span<std::byte> state);

}  // namespace runnel
