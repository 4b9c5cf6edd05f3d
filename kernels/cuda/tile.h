// A tile of up to 16 rows on its way through the whole network, as every block of its cluster has
// it in shared memory.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/replay.h"
#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kTileRows = kTileM;
inline constexpr int kTileThreads = 256;
inline constexpr int kTileWarps = kTileThreads / kWarp;
inline constexpr int kTileWarpsLog = 3;
static_assert(1 << kTileWarpsLog == kTileWarps);
inline constexpr int kTileSlots = 32;      // of the ring of weights; a power of two
inline constexpr int kStatesAhead = 2;     // of a warp, on their way
inline constexpr int kTileHeadSize = 32;   // of queries, keys and values
inline constexpr int kTileScratch = 4096;  // floats
inline constexpr int kTilesShared = 4;     // tiles of outputs, at most, that four warps share

// What a network's kernel is compiled for.
template <int width, int heads, int ffn, HeadKind head>
struct TileSizes {
  static constexpr int kWidth = width;  // columns of the residual stream
  static constexpr int kHeads = heads;
  static constexpr int kColumns = heads * kTileHeadSize;  // of all heads
  static constexpr int kFfn = ffn;  // columns of the hidden layer; at most, of the head
  static constexpr HeadKind kHead = head;
};

// The value of a row that does not step any more.
inline constexpr int32_t kFrozen = INT32_MIN;

// Where the pair of elements (row, k) and (row, k + 1), k even, of a product's inputs in bf16 lies:
// [step of 16 inputs][lane][4 pairs], the fragments A.
RUNNEL_DEVICE constexpr int tile_pair_index(int row, int k) {
  const int lane = row % 8 * 4 + k % 8 / 2;
  return (k / kTileK * kWarp + lane) * 4 + k % kTileK / 8 * 2 + row / 8;
}

// Where the output (row, column) of a projection lies: four neighbouring columns side by side, then
// the rows, so that a run of columns is one piece of memory. A row of nothing keeps the banks apart
// that a row's columns lie in.
RUNNEL_DEVICE constexpr int projected_index(int row, int column) {
  return (column / 4 * (kTileRows + 1) + row) * 4 + column % 4;
}

// A slot of the ring of weights: four chunks of a tile of eight outputs; of a split weight, of one
// of its parts. The biases of the outputs follow the last chunk of a tile.
inline constexpr int kSlotChunks = 4;
struct alignas(16) WeightSlot {
  Pairs chunk[kSlotChunks][kWarp];
  float room_for_biases[kTileN];

  RUNNEL_DEVICE const float* biases(int chunks) const {
    return reinterpret_cast<const float*>(chunk + chunks);
  }
};

// One head's log (replay.h), an entry each {phi(k), v}.
using TileLog = float[kReplay - 1][2][kTileHeadSize];

template <typename Sizes>
struct alignas(16) Tile {
  // The projection, by projected_index(). Between projections it is scratch memory of sampling and
  // recurrences, and at the end of a step it holds the remainder of x after rounding to bf16.
  float projected[(kTileRows + 1) * Sizes::kWidth > kTileScratch ? (kTileRows + 1) * Sizes::kWidth
                                                                 : kTileScratch];
  float x[kTileRows * Sizes::kWidth];                  // the residual stream, [row][width]
  uint32_t x_pairs[kTileRows * Sizes::kWidth / 2];     // the same in bf16
  uint32_t attended[kTileRows * Sizes::kColumns / 2];  // in bf16
  // One after the other: the block's heads' queries, keys and values, [row][head][3][32]; the
  // hidden layer in bf16, and behind it, where that counts, what rounding has left; the head's
  // output of the rows that the block samples.
  float wide[kTileRows * (Sizes::kFfn > 3 * Sizes::kColumns ? Sizes::kFfn : 3 * Sizes::kColumns)];
  WeightSlot slots[kTileSlots];
  // Sums of tiles that warps share: of each tile the four sums' fragments.
  Quad joined[kTilesShared][kMatmulWarps][kWarp];
  alignas(16) TileLog logs[kTileWarps][kStatesAhead];
  Barrier filled[kTileSlots], free[kTileSlots];  // of slots
  Barrier logged[kTileWarps][kStatesAhead];
  uint32_t inverse[kTileSlots];  // of n: 2^16 / n, rounded up
  int64_t position[kTileRows];   // at the beginning
  int32_t slot[kTileRows];
  int32_t value[kTileRows];  // to be consumed; kFrozen: the row stands still
};

}  // namespace runnel::cuda
