// A state as it travels: the same bytes whatever backend has computed it. Its parts stand one
// behind the other without gaps, and hold the numbers of the plain form: a GPU's log of inputs is
// folded in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace runnel {

// The parts of a layout that travel, in their order: all but logs.
std::vector<StatePart> travelling_parts(const StateLayout& layout);

// Bytes of a part, without gaps.
int64_t bytes_of(const StatePart& part);

// Brings a state that was read out of a slot after `consumed` values up to the plain form, in
// place, by the additions that a step would have made; where it has no log it is that already.
void fold_logs(const StateLayout& layout, int64_t consumed, std::span<std::byte> state);

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

// Looks at every number of a part of fp32 and makes zeros of those too small for full precision:
// they would cost a step many times what others do.
PartNumbers flush_subnormals(const StatePart& part, std::span<std::byte> state);

}  // namespace runnel
