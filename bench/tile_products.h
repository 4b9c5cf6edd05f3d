// Multiplies in bf16 with AMX tiles, to measure how many products a processor computes per second.
#pragma once

#include <cstdint>

namespace runnel {

// A step reads this many bytes of weights (32 columns of 32 inputs), and multiplies 32 rows by
// them.
inline constexpr int64_t kTileStepBytes = 2048;
inline constexpr int64_t kTileStepProducts = 32 * 32 * 32;

// Uses `data` as weights in bf16, and its first 2 KiB also as the rows. Runs one step for each
// kTileStepBytes of `bytes`, and at least one. Returns the sum of all products. Call it only where
// cpu::may_use_tiles().
float multiply_tiles(const void* data, int64_t bytes);

}  // namespace runnel
