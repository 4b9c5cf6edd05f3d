// Amounts in shared memory, one for each thread of a block, and the first place at which their
// running sum is large enough. All sums are of integers, so their order does not matter.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kSumGroup = 16;  // amounts that are added up first

// The shared memory that the sums of `count` amounts need, in units of 8 bytes.
RUNNEL_DEVICE constexpr int64_t running_sum_words(int count) {
  return count + count / kSumGroup + 1;
}

template <typename Block>
class RunningSums {
 public:
  static constexpr int kCount = Block::kThreads;

  struct Place {
    int index = 0;
    uint64_t before = 0;  // the running sum before this place
  };

  // `memory`: running_sum_words(kCount) words of shared memory.
  RUNNEL_DEVICE RunningSums(Block& block, uint64_t* memory) : block_(block), amounts_(memory) {}

  // The i-th amount. A phase must end between writing an amount and find().
  RUNNEL_DEVICE uint64_t* at(int i) const { return amounts_ + i; }

  // The first place at which `enough(sum)` holds for the sum of `before` and of the amounts up to
  // and including its own. If it never holds: the last place with an amount above 0, or place 0 if
  // there is none. `enough` must hold for every sum above one for which it holds. All threads get
  // the result, and may write new amounts at once.
  template <typename Enough>
  RUNNEL_DEVICE Place find(uint64_t before, const Enough& enough) {
    block_.phase([&](int t) {
      if (t >= kGroups) return;
      uint64_t sum = 0;
      for (int i = 0; i < kSumGroup; ++i) sum += amounts_[t * kSumGroup + i];
      groups()[t] = sum;
    });
    typename Block::template Each<uint64_t> sums, best;
    block_.each([&](int t) {
      uint64_t sum = before;
      for (int group = 0; group < t / kSumGroup; ++group) sum += groups()[group];
      for (int i = t / kSumGroup * kSumGroup; i < t; ++i) sum += amounts_[i];
      sums[t] = sum;
      if (amounts_[t] == 0) return;
      // Places where the sum is enough rank above all others, and the earliest one ranks highest.
      best[t] = static_cast<uint64_t>(enough(sum + amounts_[t]) ? 2 * kCount - t : t + 1);
    });
    const auto found = static_cast<int>(block_.largest(best));
    const int index = found > kCount ? 2 * kCount - found : found > 0 ? found - 1 : 0;
    block_.phase([&](int t) {
      if (t == index) result() = sums[t];
    });
    return {index, result()};
  }

 private:
  static constexpr int kGroups = kCount / kSumGroup;
  static_assert(kCount % kSumGroup == 0);

  RUNNEL_DEVICE uint64_t* groups() const { return amounts_ + kCount; }
  RUNNEL_DEVICE uint64_t& result() const { return amounts_[kCount + kGroups]; }

  Block& block_;
  uint64_t* amounts_;  // [kCount] amounts, [kGroups] sums of them, and a result
};

}  // namespace runnel::cuda
