// Several calls of a kernel in one launch. With one row a product takes a few microseconds, most of
// which pass between launches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

// The arguments of up to kMost calls of a kernel. The launch has the blocks of the first call, then
// those of the second one, and so on.
template <typename One>
struct Group {
  static constexpr int kMost = 8;

  int64_t blocks = 0;  // of all calls
  int count = 0;
  int first[kMost] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX,
                      INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};  // the first block of each
  One one[kMost] = {};

  // Adds a call that has this many blocks, unless it has none.
  constexpr void add(const One& args, int64_t its_blocks) {
    if (its_blocks == 0) return;
    first[count] = static_cast<int>(blocks);
    one[count] = args;
    ++count;
    blocks += its_blocks;
  }

  // The call that a block belongs to.
  RUNNEL_DEVICE constexpr int call_of(int64_t block) const {
    int call = 0;
    RUNNEL_UNROLL
    for (int i = 1; i < kMost; ++i) call += block >= first[i] ? 1 : 0;
    return call;
  }

  // A script of launches (script.h) keeps only this many bytes of the group. The other bytes never
  // change.
  size_t bytes() const { return offsetof(Group, one) + static_cast<size_t>(count) * sizeof(One); }
};

// A kernel whose launches are groups of launches of Kernel. A block does exactly what it does in a
// launch of Kernel alone.
template <typename Kernel>
struct Grouped {
  using Args = Group<typename Kernel::Args>;
  static constexpr int kThreads = Kernel::kThreads;
  static constexpr int kResident = Kernel::kResident;

  // All calls need the same amount of shared memory.
  static constexpr Launch launch(const Args& group) {
    return {.blocks = group.blocks, .shared_bytes = Kernel::launch(group.one[0]).shared_bytes};
  }

  template <typename Block>
  RUNNEL_DEVICE static void ahead(Block& block, const Args& group) {
    if constexpr (requires { Kernel::ahead(block, group.one[0]); }) {
      const int call = group.call_of(block.index());
      block.count_from(group.first[call]);
      Kernel::ahead(block, group.one[call]);
      block.count_from(0);
    }
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& group) {
    const int call = group.call_of(block.index());
    block.count_from(group.first[call]);
    const typename Kernel::Args args = group.one[call];  // read once, and then in registers
    Kernel::run(block, args);
  }
};

}  // namespace runnel::cuda
