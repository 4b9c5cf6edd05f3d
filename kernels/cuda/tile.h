// A tile of up to 16 rows that is computed through the whole network. Every block of its cluster
// has a copy in shared memory.
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
inline constexpr int kTileSlots = 32;      // the slots of the ring of weights; a power of two
inline constexpr int kStatesAhead = 2;     // states that each warp fetches ahead
inline constexpr int kTileHeadSize = 32;   // elements of a head's query, key or value
inline constexpr int kTileScratch = 4096;  // floats
inline constexpr int kTilesShared = 4;     // maximum number of output tiles that warps share

// The sizes for which a network's kernel is compiled.
template <int width, int heads, int ffn, HeadKind head>
struct TileSizes {
  static constexpr int kWidth = width;  // columns of the residual stream
  static constexpr int kHeads = heads;
  static constexpr int kColumns = heads * kTileHeadSize;  // columns of all heads
  static constexpr int kFfn = ffn;  // columns of the hidden layer, and maximum columns of the head
  static constexpr HeadKind kHead = head;
};

// The value of a row that no longer steps.
inline constexpr int32_t kFrozen = INT32_MIN;

// The inputs of a product in bf16 are stored as fragments A: [step of 16 inputs][lane][4 pairs].
// Returns the index of the pair of elements (row, k) and (row, k + 1), where k is even. Computes
// with unsigned numbers, because they are divided by a power of two in a single instruction.
RUNNEL_DEVICE constexpr int tile_pair_index(int row, int k) {
  const auto m = static_cast<unsigned>(row);
  const auto n = static_cast<unsigned>(k);
  const unsigned lane = m % 8 * 4 + n % 8 / 2;
  return static_cast<int>((n / kTileK * kWarp + lane) * 4 + n % kTileK / 8 * 2 + m / 8);
}

// The index of output (row, column) of a projection. The layout is [group of 4 columns][row][4
// columns], so that adjacent groups are contiguous. Each group has one unused row at its end, so
// that the columns of a row are in different banks.
RUNNEL_DEVICE constexpr int projected_index(int row, int column) {
  const auto n = static_cast<unsigned>(column);
  return (static_cast<int>(n / 4) * (kTileRows + 1) + row) * 4 + static_cast<int>(n % 4);
}

// A slot of the ring of weights: up to four chunks of a tile of eight outputs. If the weight is
// split, all chunks of a slot belong to the same part of it. The biases of the outputs follow the
// last chunk of a tile.
inline constexpr int kSlotChunks = 4;
struct alignas(16) WeightSlot {
  Pairs chunk[kSlotChunks][kWarp];
  float room_for_biases[kTileN];

  RUNNEL_DEVICE const float* biases(int chunks) const {
    return reinterpret_cast<const float*>(chunk + chunks);
  }
};

// One head's log (replay.h). Each entry is {phi(k), v}.
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
  // Holds these data at different times: the queries, keys and values of the block's heads,
  // [row][head][3][32]; the hidden layer in bf16, followed by the remainders of its rounding if
  // they are needed; the outputs of the network's head for the rows that the block samples.
  float wide[kTileRows * (Sizes::kFfn > 3 * Sizes::kColumns ? Sizes::kFfn : 3 * Sizes::kColumns)];
  WeightSlot slots[kTileSlots];
  // The four sums of each tile that warps share, as fragments.
  Quad joined[kTilesShared][kMatmulWarps][kWarp];
  alignas(16) TileLog logs[kTileWarps][kStatesAhead];
  Barrier filled[kTileSlots], free[kTileSlots];  // one of each for each slot
  Barrier logged[kTileWarps][kStatesAhead];
  uint32_t inverse[kTileSlots];  // inverse[n] = 2^16 / n, rounded up
  int64_t position[kTileRows];   // at the beginning of the launch
  int32_t slot[kTileRows];
  int32_t value[kTileRows];  // to be consumed; kFrozen: the row does not step

  // Whether the row steps.
  RUNNEL_DEVICE bool live(int row) const { return value[row] != kFrozen; }
};

}  // namespace runnel::cuda
