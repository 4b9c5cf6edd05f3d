// The positions of a tensor core's operands in registers, for `mma.m16n8k16` with bf16 inputs and
// fp32 sums, D [16, 8] += A [16, 16] B [16, 8]: which lane of the warp holds which element (PTX
// ISA, "Matrix fragments for mma.m16n8k16 with floating point type"). A register of A or B is a
// pair of bf16 with adjacent k, the lower one in the low half.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kTileM = 16;
inline constexpr int kTileN = 8;
inline constexpr int kTileK = 16;

struct FragmentA {
  uint32_t pair[4] = {};
};
struct FragmentB {
  uint32_t pair[2] = {};
};
struct FragmentC {
  float at[4] = {};
};

struct Element {
  int row = 0;
  int col = 0;
};

// The first element (row m, column k) of register `index` of A. The second element is in the next
// column.
RUNNEL_DEVICE constexpr Element element_a(int lane, int index) {
  return {lane / 4 + index % 2 * 8, lane % 4 * 2 + index / 2 * 8};
}

// The first element (row k, column n) of register `index` of B. The second element is in the next
// row.
RUNNEL_DEVICE constexpr Element element_b(int lane, int index) {
  return {lane % 4 * 2 + index * 8, lane / 4};
}

// The element (row m, column n) in register `index` of C and D.
RUNNEL_DEVICE constexpr Element element_c(int lane, int index) {
  return {lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2};
}

}  // namespace runnel::cuda
