// The arrays of a batch that every layer reads, from host memory to the device's own.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

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

}  // namespace runnel::cuda
