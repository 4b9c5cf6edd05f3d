// The portable form of a state, whose bytes do not depend on the backend that computed it. The
// parts follow each other without gaps, and have the numbers of the plain form: a GPU's log of
// inputs is folded in. A cache has only the pages in use, with zeros after the last position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace runnel {

// The parts of a layout in the portable form after `consumed` inputs, in their order: all except
// logs and the recent values. A cache has its pages up to the last position, and at least one.
std::vector<StatePart> travelling_parts(const StateLayout& layout, int64_t consumed);

// Bytes of a part, without gaps.
int64_t bytes_of(const StatePart& part);

// Converts a state that was read from a slot after `consumed` values to the plain form, in place.
// It makes the same additions that a step would have made. A state without a log is in the plain
// form already.
void fold_logs(const StateLayout& layout, int64_t consumed, std::span<std::byte> state);

// Zeroes the bytes after the last position in the pages of the portable form. These bytes may come
// from another session.
void clear_unused(const StateLayout& layout, int64_t consumed, std::span<std::byte> state);

// The recent values of a state at `position`, oldest first: the values before `position` that are
// in the ring.
std::vector<int32_t> recent_values(const StateLayout& layout, int64_t position,
                                   std::span<const std::byte> state);

// Writes `values`, the last ones before `position`, into the empty ring of a state. If the ring is
// too small for all of them, it gets the last ones.
void set_recent_values(const StateLayout& layout, int64_t position, std::span<const int32_t> values,
                       std::span<std::byte> state);

// Iterates over the bytes of a part in the portable form, and finds their places in a state.
class PartWalk {
 public:
  PartWalk(const StatePart& part, std::span<std::byte> state) : part_(part), state_(state) {}

  // The next contiguous bytes, at most `most`. Empty at the end.
  std::span<std::byte> next(int64_t most);

 private:
  const StatePart& part_;
  const std::span<std::byte> state_;
  int64_t entry_ = 0;  // index in the first dimension
  int64_t at_ = 0;     // offset in that entry
};

// The findings of flush_subnormals() or examine_numbers() in a part.
struct PartNumbers {
  bool finite = true;
  int64_t subnormal = 0;
};

// Examines every number of a part of fp32 or bf16, and flushes subnormal numbers to zero, because
// they would make steps many times slower. A subnormal bf16 number is also one when widened.
PartNumbers flush_subnormals(const StatePart& part, std::span<std::byte> state);
// The same, but changes no number.
PartNumbers examine_numbers(const StatePart& part, std::span<std::byte> state);

}  // namespace runnel
