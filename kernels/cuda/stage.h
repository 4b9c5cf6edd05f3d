// Copies from host memory to the device: the arrays of a batch, which every layer or step reads,
// and a few bytes that are passed as arguments of a launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

// An array in host memory that every step reads. The first launch of a batch reads it there and
// copies it, and later launches read the copy, because host memory is slow to reach.
struct Kept {
  const int32_t* from;
  int32_t* copy;  // null: there is nothing to copy

  RUNNEL_DEVICE void keep(int i) const {
    if (copy != nullptr) copy[i] = from[i];
  }
};

struct StageArgs {
  const int32_t* slot;   // [count]
  const int32_t* first;  // [count + 1]
  int count;
  int32_t* slot_here;
  int32_t* first_here;
};

struct StageKernel {
  using Args = StageArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 1;

  static constexpr Launch launch(int64_t count) {
    return {.blocks = count / kThreads + 1, .shared_bytes = 0};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t begin = block.index() * kThreads;
    block.each([&](int t) {
      const int64_t i = begin + t;
      if (i < args.count) args.slot_here[i] = args.slot[i];
      if (i <= args.count) args.first_here[i] = args.first[i];
    });
  }
};

inline constexpr int kWrittenBytes = 128;

struct WriteArgs {
  std::byte* to;
  int bytes;
  std::byte data[kWrittenBytes];
};

// Writes bytes that are passed as its arguments, so the host does not have to wait for the copy.
struct WriteKernel {
  using Args = WriteArgs;
  static constexpr int kThreads = kWrittenBytes;
  static constexpr int kResident = 1;

  static constexpr Launch launch() { return {.blocks = 1, .shared_bytes = 0}; }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    block.each([&](int t) {
      if (t < args.bytes) args.to[t] = args.data[t];
    });
  }
};

}  // namespace runnel::cuda
