// Rows of a batch and the states that they name, for tests of operations that use both.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/fixture.h"

namespace runnel {

// Rows of the given lengths, in the given slots.
struct Batch {
  std::vector<int32_t> slot, first;
  std::vector<Control> controls;  // of all slots up to the last one that the batch names
  Batch(std::vector<int32_t> slots, const std::vector<int>& lengths) : slot(std::move(slots)) {
    first.push_back(0);
    for (const int length : lengths) first.push_back(first.back() + length);
    controls.resize(std::max(*std::ranges::max_element(slot), 0) + 1);
  }
  Rows rows() { return {slot.data(), first.data(), static_cast<int>(slot.size())}; }
  const Control* control() const { return controls.data(); }
  int inputs() const { return first.back(); }
  int length(int row) const { return first[row + 1] - first[row]; }
};

// Random states of some slots, in memory that detects writes around them. If `aligned`, states
// begin at multiples of 16 bytes, else anywhere.
struct SlotStates {
  SlotStates(int slots, int floats, bool aligned = false)
      : size(floats),
        around(aligned ? 5 : 3),
        memory(slots, floats + 2 * around, aligned ? 4 - (floats + 2 * around) % 4 : 1),
        before(slots, floats + 2 * around) {
    const std::vector<float> random = random_floats(int64_t{slots} * before.cols(), 77);
    memory.fill(random);
    before.fill(random);
    while (aligned && reinterpret_cast<uintptr_t>(memory.row(0) + base) % 16 != 0) ++base;
  }
  States states() {
    return {reinterpret_cast<std::byte*>(memory.row(0) + base), memory.view().stride * int64_t{4},
            (around - base) * 4};
  }
  // The slot's state before the operation, as doubles.
  std::vector<double> initial(int slot) {
    return {before.row(slot) + around, before.row(slot) + around + size};
  }
  void expect_near(int slot, const std::vector<double>& state, double tolerance) {
    for (int i = 0; i < size; ++i) {
      ASSERT_NEAR(memory.at(slot, around + i), state[i], tolerance * (1 + std::abs(state[i])))
          << "state of slot " << slot << " at " << i;
    }
  }
  // Nothing around the states has changed, nor has the state of any slot that no row uses.
  void expect_rest_untouched(const Batch& batch) {
    memory.expect_guards("states");
    for (int slot = 0; slot < memory.rows(); ++slot) {
      const bool used = std::ranges::count(batch.slot, slot) > 0;
      for (int i = 0; i < memory.cols(); ++i) {
        if (used && i >= around && i < around + size) continue;
        ASSERT_EQ(memory.at(slot, i), before.at(slot, i)) << "slot " << slot << " at " << i;
      }
    }
  }

  int size, around;  // floats of a state, and of other data before and after it
  Guarded memory, before;
  int base = 0;  // floats before States::base
};

}  // namespace runnel
