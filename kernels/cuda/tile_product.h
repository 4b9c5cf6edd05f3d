// Products of a tile's rows with a block's part of a weight, with the sums of matmul.h: a warp has
// two tiles of eight outputs at a time, and of each the four sums that MatmulBf16 has in four
// warps.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementary.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_weights.h"
#include "kernels/device.h"

namespace runnel::cuda {

// A product's inputs in bf16 (tile_pair_index()), and for a split one what rounding has left.
struct TileInputs {
  const uint32_t* pairs;
  const uint32_t* rest = nullptr;
};

template <typename Block, typename Sizes>
class TileProducts {
 public:
  RUNNEL_DEVICE TileProducts(Block& block, Tile<Sizes>& tile, const Companions& companions,
                             int rows)
      : block_(block), weights_(block, tile, companions), rows_(rows) {}

  // Before gather(), of all threads.
  RUNNEL_DEVICE void prepare(int t) { weights_.prepare(t); }

  // The weights of the first product set out.
  template <typename First>
  RUNNEL_DEVICE RUNNEL_INLINE void begin(const First& first) {
    weights_.begin(first);
  }

  // The share of a product; `next` is the one that comes after it. Gives out(row, column, two) for
  // every row and two neighbouring columns, as the block counts them. Nothing is said about when
  // other threads see what out() wrote.
  template <typename Now, typename Next, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void run(const Now& share, const Next& next, const TileInputs& inputs,
                                       Activation activation, const Out& out) {
    weights_.turn_to(share, next);
    for (int first = 0; first < share.tiles; first += kTilesAtOnce) {
      const int left = share.tiles - first;
      const Pass pass = {first, left < kTilesAtOnce ? left : kTilesAtOnce};
      if (pass.tiles > kTileWarps) {
        take<kTilesOfWarp>(share, next, pass, inputs, activation, out);
      } else {
        take<1>(share, next, pass, inputs, activation, out);
      }
    }
    weights_.turn_from(share);
  }

 private:
  static constexpr int kChunksHeld = 4;  // in registers at once

  // Tiles [first, first + tiles) of the share.
  struct Pass {
    int first, tiles;

    // The i-th tile of thread t's warp; negative if the warp has none.
    RUNNEL_DEVICE int tile(int t, int i) const {
      const int at = t / kWarp + i * kTileWarps;
      return at < tiles ? at : -1;
    }
    // The position of its first tile's slot in a round of `rounds`.
    RUNNEL_DEVICE int slot(int rounds, int round) const { return first * rounds + round * tiles; }
  };
  // Whether a slot of the round was read by another warp the last time, in the same product.
  RUNNEL_DEVICE static bool changes_hands(const Pass& pass, int round) {
    const bool in_step = pass.first == 0 && kTileSlots % pass.tiles == 0;
    return pass.first + round > 0 && pass.tiles % kTileWarps != 0 && !in_step;
  }

  // The four sums of each of a warp's tiles, and the biases of the thread's columns.
  template <int kTiles>
  struct Sums {
    FragmentC at[kTiles][kMatmulWarps];
    Two bias[kTiles];
  };
  struct Inputs {
    FragmentA at[kChunksHeld][2];
  };
  struct Weights {
    FragmentB at[kChunksHeld][2];
  };

  // A pass of which no warp has more than kTiles tiles.
  template <int kTiles, typename Now, typename Next, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void take(const Now& share, const Next& next, const Pass& pass,
                                        const TileInputs& inputs, Activation activation,
                                        const Out& out) {
    typename Block::template Each<Sums<kTiles>> sums;
    RUNNEL_ROLL
    for (int round = 0; round < Now::kRounds; ++round) {
      // The parity of a barrier tells only neighbouring phases apart. If another warp read the
      // slot last, this phase makes sure that the barrier's previous phase is over.
      if (changes_hands(pass, round)) block_.phase([](int) {});
      await<kTiles, Now>(pass, round, sums);
      RUNNEL_UNROLL
      for (int chunk = 0; chunk < Now::kTogether; chunk += kChunksHeld) {
        if (chunk < Now::chunks(round)) multiply<kTiles, Now>(pass, round, chunk, inputs, sums);
      }
      make_room(share, next, pass, pass.slot(Now::kRounds, round));
    }
    finish<kTiles>(share, pass, activation, sums, out);
  }

  // Waits for the slots of a round, and reads the biases from the last ones.
  template <int kTiles, typename Now, typename EachSums>
  RUNNEL_DEVICE RUNNEL_INLINE void await(const Pass& pass, int round, EachSums& sums) {
    const int slot = pass.slot(Now::kRounds, round);
    block_.each([&](int t) {
      RUNNEL_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if (pass.tile(t, i) < 0) continue;
        weights_.await(slot + pass.tile(t, i));
        if (round + 1 < Now::kRounds) continue;
        const WeightSlot& last = weights_.slot(slot + pass.tile(t, i));
        const float* biases = last.biases(Now::chunks(round) * Now::kParts);
        sums[t].bias[i] = *reinterpret_cast<const Two*>(biases + element_c(t % kWarp, 0).col);
      }
    });
  }

  // Adds chunks [chunk, chunk + kChunksHeld) of a round.
  template <int kTiles, typename Now, typename EachSums>
  RUNNEL_DEVICE RUNNEL_INLINE void multiply(const Pass& pass, int round, int chunk,
                                            const TileInputs& inputs, EachSums& sums) {
    const int slot = pass.slot(Now::kRounds, round);
    const int chunks = Now::chunks(round);
    const int input = round * Now::kTogether + chunk;
    typename Block::template Each<Inputs> a;
    typename Block::template Each<Inputs> rest;
    block_.each([&](int t) {
      load_inputs(inputs.pairs, input, Now::kChunks, t % kWarp, a[t]);
      if (Now::kSplit) load_inputs(inputs.rest, input, Now::kChunks, t % kWarp, rest[t]);
    });
    const auto rounded = [&](int t, int) -> Inputs& { return a[t]; };
    const auto both = [&](int t, int part) -> Inputs& { return part == 0 ? a[t] : rest[t]; };
    RUNNEL_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      typename Block::template Each<Weights> b;
      const auto load = [&](int first, int end) {
        block_.each([&](int t) {
          if (pass.tile(t, i) < 0) return;
          load_weights(weights_.slot(slot + pass.tile(t, i)), first, end, t % kWarp, b[t]);
        });
      };
      load(chunk, chunks);
      if constexpr (Now::kSplit) {
        add<2>(i, chunk, sums, b, both);
        load(chunks + chunk, 2 * chunks);
      }
      add<1>(i, chunk, sums, b, rounded);
    }
  }

  // The sums of the warp's i-th tile, which come to nothing where it has none, += a(t, part) b for
  // each of the chunks' halves and, within it, each part of the inputs.
  template <int kParts, typename EachSums, typename EachWeights, typename InputsOf>
  RUNNEL_DEVICE RUNNEL_INLINE void add(int i, int chunk, EachSums& sums, EachWeights& b,
                                       const InputsOf& a) {
    // In such an order that neighbours are of different sums.
    const auto half = [](int n) { return n / (kParts * kChunksHeld); };
    const auto part = [](int n) { return n / kChunksHeld % kParts; };
    const auto of = [](int n) { return n % kChunksHeld; };
    block_.template mma<2 * kParts * kChunksHeld>(
        [&](int t, int n) -> FragmentC& { return sums[t].at[i][(chunk + of(n)) % kMatmulWarps]; },
        [&](int t, int n) -> const FragmentA& { return a(t, part(n)).at[of(n)][half(n)]; },
        [&](int t, int n) -> const FragmentB& { return b[t].at[of(n)][half(n)]; });
  }

  // Loads kChunksHeld chunks of a slot from `first` on; zeros from `end` on.
  RUNNEL_DEVICE RUNNEL_INLINE static void load_weights(const WeightSlot& slot, int first, int end,
                                                       int lane, Weights& to) {
    RUNNEL_UNROLL
    for (int j = 0; j < kChunksHeld; ++j) {
      const Pairs pairs = first + j < end ? slot.chunk[first + j][lane] : Pairs{};
      for (int p = 0; p < 4; ++p) to.at[j][p / 2].pair[p % 2] = pairs.at[p];
    }
  }
  RUNNEL_DEVICE RUNNEL_INLINE static void load_inputs(const uint32_t* pairs, int first, int chunks,
                                                      int lane, Inputs& to) {
    RUNNEL_UNROLL
    for (int j = 0; j < kChunksHeld; ++j) {
      for (int half = 0; half < 2; ++half) {
        const int step = (first + j) * 2 + half;
        const Pairs four = first + j < chunks
                               ? reinterpret_cast<const Pairs*>(pairs)[step * kWarp + lane]
                               : Pairs{};
        for (int i = 0; i < 4; ++i) to.at[j][half].pair[i] = four.at[i];
      }
    }
  }

  // Refills the slots that the warps have read, from position `slot` on: one lane for each tile.
  template <typename Now, typename Next>
  RUNNEL_DEVICE RUNNEL_INLINE void make_room(const Now& share, const Next& next, const Pass& pass,
                                             int slot) {
    typename Block::template Each<typename TileWeights<Block, Sizes>::Fill> fills;
    block_.each([&](int t) {
      const int tile = t % kWarp < kTilesOfWarp ? pass.tile(t, t % kWarp) : -1;
      if (tile < 0) return;
      fills[t] = weights_.behind(share, next, slot + tile);
      weights_.expect(fills[t], slot + tile);
    });
    block_.each([&](int t) { weights_.fetch(fills[t], slot + pass.tile(t, t % kWarp)); });
  }

  template <int kTiles, typename Now, typename EachSums, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void finish(const Now& share, const Pass& pass, Activation activation,
                                          EachSums& sums, const Out& out) {
    block_.each([&](int t) {
      RUNNEL_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if (pass.tile(t, i) < 0) continue;
        const FragmentC* part = sums[t].at[i];
        const auto whole = [&](int e) {
          const float sum = (part[0].at[e] + part[1].at[e]) + (part[2].at[e] + part[3].at[e]);
          return activate_basic(activation, sum + sums[t].bias[i].at[e % 2]);
        };
        const int column = (share.begin + pass.first + pass.tile(t, i)) * kTileN;
        for (int e = 0; e < 4; e += 2) {
          const Element at = element_c(t % kWarp, e);
          if (at.row < rows_) out(at.row, column + at.col, Two{{whole(e), whole(e + 1)}});
        }
      }
    });
  }

  Block& block_;
  TileWeights<Block, Sizes> weights_;
  const int rows_;
};

}  // namespace runnel::cuda
