// Products of bf16 by AMX's tiles, to measure how many a processor does in a second.
#pragma once

#include <cstdint>

namespace runnel {

// A step reads this many bytes of weights, 32 columns of 32 inputs, and multiplies 32 rows by them.
inline constexpr int64_t kTileStepBytes = 2048;
inline constexpr int64_t kTileStepProducts = 32 * 32 * 32;

// Takes `data` as weights in bf16, and its first 2 KiB as rows too: one step for each
// kTileStepBytes of `bytes`, at least one. Returns the sum of all products.
// Call it only where cpu::may_use_tiles().
float multiply_tiles(const void* data, int64_t bytes);

}  // namespace runnel
