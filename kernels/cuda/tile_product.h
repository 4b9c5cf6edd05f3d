// Products of a tile's rows with a block's part of a weight, with the order of sums of matmul.h.
// Each tile of eight outputs has the four sums that MatmulBf16 has in four warps. If a block has
// many tiles, a warp computes two tiles at a time, with all their sums. If it has few, four warps
// share a tile.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/elementary.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_weights.h"
#include "kernels/device.h"

namespace runnel::cuda {

// A product's inputs in bf16 (tile_pair_index()). For a split product, also the remainders of the
// rounding.
struct TileInputs {
  const uint32_t* pairs;
  const uint32_t* rest = nullptr;
};

template <typename Block, typename Sizes>
class TileProducts {
 public:
  RUNNEL_DEVICE TileProducts(Block& block, Tile<Sizes>& tile, const Companions& companions,
                             int rows)
      : block_(block), tile_(tile), weights_(block, tile, companions), rows_(rows) {}

  // To be called by all threads before gather().
  RUNNEL_DEVICE void prepare(int t) { weights_.prepare(t); }

  // Starts copies of the first product's weights.
  template <typename First>
  RUNNEL_DEVICE RUNNEL_INLINE void begin(const First& first) {
    weights_.begin(first);
  }
  // Makes `share` the current product, and starts copies of the weights of `next`, the product
  // after it, to the slots that `share` leaves free. To be called inside the work of a meeting, or
  // between phases.
  template <typename Now, typename Next>
  RUNNEL_DEVICE RUNNEL_INLINE void turn_to(const Now& share, const Next& next) {
    weights_.turn_to(share, next);
  }

  // Computes a share of a product. turn_to() must have been called for it, with the same `next`.
  // Calls out(row, column, two) for every row and two adjacent columns; columns are counted within
  // the block. Other threads see what out() writes after the next phase or meeting.
  template <typename Now, typename Next, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void run(const Now& share, const Next& next, const TileInputs& inputs,
                                       Activation activation, const Out& out) {
    for (int first = 0; first < share.tiles; first += kTilesAtOnce) {
      const int left = share.tiles - first;
      // The most frequent numbers of tiles are compile-time constants, so that no tile needs a
      // check that it exists.
      if (left >= kTilesAtOnce) {
        take(share, next, FullPass<kTilesAtOnce>{first}, inputs, activation, out);
      } else if (left == kTileWarps) {
        take(share, next, FullPass<kTileWarps>{first}, inputs, activation, out);
      } else if (left > kTilesShared) {
        take(share, next, Pass{first, left}, inputs, activation, out);
      } else if (left == kSharing) {
        take_shared(share, next, FullPass<kSharing>{first}, inputs, activation, out);
      } else {
        take_shared(share, next, Pass{first, left}, inputs, activation, out);
      }
    }
    weights_.turn_from(share);
  }

 private:
  // A pass over tiles [first, first + tiles) of the share.
  struct Pass {
    int first, tiles;

    // The position of the slot of the pass's first tile in round `round` of `rounds`.
    RUNNEL_DEVICE int slot(int rounds, int round) const { return first * rounds + round * tiles; }
  };
  // A pass whose number of tiles is a compile-time constant.
  template <int kTiles>
  struct FullPass {
    int first;
    static constexpr int tiles = kTiles;

    RUNNEL_DEVICE int slot(int rounds, int round) const { return first * rounds + round * tiles; }
  };
  // Four chunks of a product's inputs, and of a tile's weights.
  struct Inputs {
    FragmentA at[kSlotChunks][2];
  };
  struct Weights {
    FragmentB at[kSlotChunks][2];
  };

  // ---- two tiles for each warp: its own, and the one eight further

  // The four sums of each of a warp's tiles.
  struct Sums {
    FragmentC at[kTilesOfWarp][kMatmulWarps];
  };
  struct Biases {
    Two at[kTilesOfWarp];  // of the thread's columns
  };
  // The i-th tile of thread t's warp; negative: none.
  template <typename AnyPass>
  RUNNEL_DEVICE static int tile_of_warp(const AnyPass& pass, int t, int i) {
    const int at = t / kWarp + i * kTileWarps;
    if constexpr (!std::is_same_v<AnyPass, Pass>)
      return (i + 1) * kTileWarps <= pass.tiles ? at : -1;
    return at < pass.tiles ? at : -1;
  }
  // Whether the last reader of a round's slots may have been another warp, in the same product.
  template <typename AnyPass>
  RUNNEL_DEVICE static bool changes_hands(const AnyPass& pass, int rounds, int round) {
    return pass.tiles % kTileWarps != 0 && pass.slot(rounds, round + 1) > kTileSlots;
  }

  template <typename Now, typename Next, typename AnyPass, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void take(const Now& share, const Next& next, const AnyPass& pass,
                                        const TileInputs& inputs, Activation activation,
                                        const Out& out) {
    typename Block::template Each<Sums> sums;
    RUNNEL_ROLL
    for (int group = 0; group < Now::kGroups; ++group) {
      typename Block::template Each<Inputs> a;
      typename Block::template Each<Inputs> rest;
      RUNNEL_UNROLL
      for (int part = 0; part < Now::kParts; ++part) {
        const int round = group * Now::kParts + part;
        // The parity of a barrier tells only neighbouring phases apart. If another warp read the
        // slot last, this phase makes sure that the barrier's previous phase is over.
        if (changes_hands(pass, Now::kRounds, round)) block_.phase([](int) {});
        await<Now>(pass, round);
        block_.each([&](int t) {
          if (part > 0) return;  // the inputs are still loaded
          load_inputs<Now>(inputs.pairs, group, t % kWarp, a[t]);
          if (Now::kSplit) load_inputs<Now>(inputs.rest, group, t % kWarp, rest[t]);
        });
        if (Now::kSplit && part == 0) {
          multiply<Now, 2>(pass, round, sums,
                           [&](int t, int i) -> Inputs& { return i == 0 ? a[t] : rest[t]; });
        } else {
          multiply<Now, 1>(pass, round, sums, [&](int t, int) -> Inputs& { return a[t]; });
        }
        const bool is_last = round + 1 == Now::kRounds;
        typename Block::template Each<Biases> biases;
        if (is_last) read_biases<Now>(pass, biases);
        make_room(share, next, pass.slot(Now::kRounds, round), [&](int t) {
          return t % kWarp < kTilesOfWarp ? tile_of_warp(pass, t, t % kWarp) : -1;
        });
        if (is_last) finish(share, pass, activation, sums, biases, out);
      }
    }
  }

  // Waits for the slots of a round.
  template <typename Now, typename AnyPass>
  RUNNEL_DEVICE RUNNEL_INLINE void await(const AnyPass& pass, int round) {
    const int slot = pass.slot(Now::kRounds, round);
    block_.each([&](int t) {
      RUNNEL_UNROLL
      for (int i = 0; i < kTilesOfWarp; ++i) {
        const int tile = tile_of_warp(pass, t, i);
        if (tile >= 0) weights_.await(slot + tile);
      }
    });
  }
  template <typename Now, typename AnyPass, typename EachBiases>
  RUNNEL_DEVICE RUNNEL_INLINE void read_biases(const AnyPass& pass, EachBiases& biases) {
    const int slot = pass.slot(Now::kRounds, Now::kRounds - 1);
    block_.each([&](int t) {
      RUNNEL_UNROLL
      for (int i = 0; i < kTilesOfWarp; ++i) {
        const int tile = tile_of_warp(pass, t, i);
        if (tile >= 0) biases[t].at[i] = bias<Now>(slot + tile, t);
      }
    });
  }

  // Adds the products of a round's chunks to the sums of the warp's tiles: for each half of the
  // chunks, and within it for each of the inputs' kParts parts, a(t, part).
  template <typename Now, int kParts, typename AnyPass, typename EachSums, typename InputsOf>
  RUNNEL_DEVICE RUNNEL_INLINE void multiply(const AnyPass& pass, int round, EachSums& sums,
                                            const InputsOf& a) {
    const int slot = pass.slot(Now::kRounds, round);
    const int chunks = Now::chunks(round / Now::kParts);
    // In this order, consecutive multiplications belong to different sums.
    const auto half = [](int n) { return n / (kParts * kSlotChunks); };
    const auto part = [](int n) { return n / kSlotChunks % kParts; };
    const auto of = [](int n) { return n % kSlotChunks; };
    RUNNEL_UNROLL
    for (int i = 0; i < kTilesOfWarp; ++i) {
      if (i * kTileWarps >= pass.tiles) continue;  // no warp has such a tile
      typename Block::template Each<Weights> b;
      block_.each([&](int t) {
        const int tile = tile_of_warp(pass, t, i);
        if (tile >= 0) load_weights(weights_.slot(slot + tile), chunks, t % kWarp, b[t]);
      });
      block_.template mma<2 * kParts * kSlotChunks>(
          [&](int t, int n) -> FragmentC& { return sums[t].at[i][of(n) % kMatmulWarps]; },
          [&](int t, int n) -> const FragmentA& { return a(t, part(n)).at[of(n)][half(n)]; },
          [&](int t, int n) -> const FragmentB& { return b[t].at[of(n)][half(n)]; });
    }
  }

  template <typename Now, typename AnyPass, typename EachSums, typename EachBiases, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void finish(const Now& share, const AnyPass& pass,
                                          Activation activation, EachSums& sums, EachBiases& biases,
                                          const Out& out) {
    for_activation(activation, [&](Activation known) {
      block_.each([&](int t) {
        RUNNEL_UNROLL
        for (int i = 0; i < kTilesOfWarp; ++i) {
          const int tile = tile_of_warp(pass, t, i);
          if (tile < 0) continue;
          const FragmentC* part = sums[t].at[i];
          give(share.begin + pass.first + tile, known, biases[t].at[i], t, out,
               [&](int p, int e) { return part[p].at[e]; });
        }
      });
    });
  }

  // ---- four warps for each tile: each computes one of its sums, for two tiles, its own and the
  // one two further

  static_assert(kSlotChunks == kMatmulWarps && kTileWarps == 2 * kMatmulWarps);
  static constexpr int kSharing = kTileWarps / kMatmulWarps;       // tiles at the same time
  static constexpr int kTilesOfSharing = kTilesShared / kSharing;  // tiles of each group of warps
  static constexpr int kSlotsShared = kTileSlots / 2;  // slots that are read before any is refilled

  struct SharedSums {
    FragmentC at[kTilesOfSharing];
    Two bias;  // the bias of the tile that the warp finishes
  };
  RUNNEL_DEVICE static int sum_of(int t) { return t / kWarp % kMatmulWarps; }
  // The i-th tile of thread t's warp; negative: none.
  template <typename AnyPass>
  RUNNEL_DEVICE static int shared_tile(const AnyPass& pass, int t, int i) {
    const int at = t / kWarp / kMatmulWarps + i * kSharing;
    if constexpr (!std::is_same_v<AnyPass, Pass>) return (i + 1) * kSharing <= pass.tiles ? at : -1;
    return i < kTilesOfSharing && at < pass.tiles ? at : -1;
  }
  // Returns the tile that this warp finishes. Warps that share tiles finish different ones.
  template <typename AnyPass>
  RUNNEL_DEVICE static int finished_tile(const AnyPass& pass, int t) {
    return shared_tile(pass, t, sum_of(t));
  }

  template <typename Now, typename Next, typename AnyPass, typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void take_shared(const Now& share, const Next& next,
                                               const AnyPass& pass, const TileInputs& inputs,
                                               Activation activation, const Out& out) {
    // The number of groups whose slots are read before any of them is refilled.
    constexpr int kLeast = kSlotsShared / (kTilesShared * Now::kParts);
    static_assert(kLeast > 0);
    const int together = pass.tiles > 2 ? kLeast : pass.tiles > 1 ? 2 * kLeast : 4 * kLeast;
    typename Block::template Each<SharedSums> sums;
    // The previous pass may have read these slots last (changes_hands()).
    if (pass.first > 0) block_.phase([](int) {});
    RUNNEL_ROLL
    for (int first = 0; first < Now::kGroups; first += together) {
      const int left = Now::kGroups - first;
      const int groups = left < together ? left : together;
      await_shared<Now>(pass, first, groups, sums);
      RUNNEL_UNROLL_PAIRS
      for (int group = first; group < first + groups; ++group) {
        multiply_shared<Now>(pass, group, inputs, sums);
      }
      const int slot = pass.slot(Now::kRounds, first * Now::kParts);
      const int slots = groups * Now::kParts * pass.tiles;
      block_.phase([&](int t) {
        for (int i = 0; i < kTilesOfSharing; ++i) {
          if (shared_tile(pass, t, i) < 0) continue;
          Quad& to = joined(shared_tile(pass, t, i), sum_of(t), t);
          for (int e = 0; e < Quad::kWidth; ++e) to.at[e] = sums[t].at[i].at[e];
        }
      });
      make_room(share, next, slot, [&](int t) {
        constexpr int kThreads = kTileThreads / kSlotsShared;
        return t % kThreads == 0 && t / kThreads < slots ? t / kThreads : -1;
      });
    }
    for_activation(activation, [&](Activation known) {
      block_.each([&](int t) {
        const int tile = finished_tile(pass, t);
        if (tile < 0) return;
        Quad parts[kMatmulWarps];
        for (int p = 0; p < kMatmulWarps; ++p) parts[p] = joined(tile, p, t);
        give(share.begin + pass.first + tile, known, sums[t].bias, t, out,
             [&](int p, int e) { return parts[p].at[e]; });
      });
    });
  }

  RUNNEL_DEVICE Quad& joined(int tile, int part, int t) const {
    return tile_.joined[tile][part][t % kWarp];
  }

  // Waits for the slots of the groups' rounds, and reads the biases from the last ones.
  template <typename Now, typename AnyPass, typename EachSums>
  RUNNEL_DEVICE RUNNEL_INLINE void await_shared(const AnyPass& pass, int first, int groups,
                                                EachSums& sums) {
    const int end = (first + groups) * Now::kParts;
    block_.each([&](int t) {  // each lane waits for the slot of another round
      for (int i = 0; i < kTilesOfSharing; ++i) {
        const int tile = shared_tile(pass, t, i);
        if (tile < 0) continue;
        for (int round = first * Now::kParts + t % kWarp; round < end; round += kWarp) {
          weights_.await(pass.slot(Now::kRounds, round) + tile);
        }
      }
    });
    if (end != Now::kRounds) return;
    block_.each([&](int t) {
      const int last = pass.slot(Now::kRounds, Now::kRounds - 1) + finished_tile(pass, t);
      if (finished_tile(pass, t) >= 0) sums[t].bias = bias<Now>(last, t);
    });
  }

  // Adds the chunk of a group that belongs to the warp's sum.
  template <typename Now, typename AnyPass, typename EachSums>
  RUNNEL_DEVICE RUNNEL_INLINE void multiply_shared(const AnyPass& pass, int group,
                                                   const TileInputs& inputs, EachSums& sums) {
    struct Chunk {
      FragmentA a[Now::kParts][2];
      FragmentB b[Now::kParts][2];
    };
    typename Block::template Each<Chunk> of;
    const int chunks = Now::chunks(group);
    block_.each([&](int t) {
      for (int part = 0; part < Now::kParts; ++part) {
        load_chunk(inputs_of(part == 0 ? inputs.pairs : inputs.rest, group), sum_of(t), chunks,
                   t % kWarp, of[t].a[part]);
      }
    });
    RUNNEL_UNROLL
    for (int i = 0; i < kTilesOfSharing; ++i) {
      if (i * kSharing >= pass.tiles) continue;  // no warp has such a tile
      block_.each([&](int t) {
        if (shared_tile(pass, t, i) < 0) return;
        RUNNEL_UNROLL
        for (int part = 0; part < Now::kParts; ++part) {
          const int round = group * Now::kParts + part;
          const WeightSlot& slot =
              weights_.slot(pass.slot(Now::kRounds, round) + shared_tile(pass, t, i));
          load_chunk(slot, sum_of(t), chunks, t % kWarp, of[t].b[part]);
        }
      });
      // As in multiply(): first each half of the inputs' parts by the rounded weights, then the
      // rounded inputs by the remainders of the weights.
      constexpr int kProducts = Now::kSplit ? 6 : 2;
      const auto half = [](int n) { return Now::kSplit ? n < 4 ? n / 2 : n - 4 : n; };
      const auto part_a = [](int n) { return Now::kSplit && n < 4 ? n % 2 : 0; };
      const auto part_b = [](int n) { return n < 4 ? 0 : 1; };
      block_.template mma<kProducts>(
          [&](int t, int) -> FragmentC& { return sums[t].at[i]; },
          [&](int t, int n) -> const FragmentA& { return of[t].a[part_a(n)][half(n)]; },
          [&](int t, int n) -> const FragmentB& { return of[t].b[part_b(n)][half(n)]; });
    }
  }

  // ---- functions that both use

  // Loads the chunks of a slot. Chunks from `end` on are zeros.
  RUNNEL_DEVICE RUNNEL_INLINE static void load_weights(const WeightSlot& slot, int end, int lane,
                                                       Weights& to) {
    RUNNEL_UNROLL
    for (int j = 0; j < kSlotChunks; ++j) load_chunk(slot, j, end, lane, to.at[j]);
  }
  RUNNEL_DEVICE RUNNEL_INLINE static void load_chunk(const WeightSlot& slot, int chunk, int end,
                                                     int lane, FragmentB (&to)[2]) {
    const Pairs pairs = chunk < end ? slot.chunk[chunk][lane] : Pairs{};
    for (int p = 0; p < 4; ++p) to[p / 2].pair[p % 2] = pairs.at[p];
  }
  template <typename Now>
  RUNNEL_DEVICE RUNNEL_INLINE static void load_inputs(const uint32_t* pairs, int group, int lane,
                                                      Inputs& to) {
    RUNNEL_UNROLL
    for (int j = 0; j < kSlotChunks; ++j) {
      load_chunk(inputs_of(pairs, group), j, Now::chunks(group), lane, to.at[j]);
    }
  }
  // The inputs of a group of chunks.
  RUNNEL_DEVICE static const uint32_t* inputs_of(const uint32_t* pairs, int group) {
    return pairs + group * kSlotChunks * 2 * kWarp * 4;
  }
  RUNNEL_DEVICE RUNNEL_INLINE static void load_chunk(const uint32_t* pairs, int chunk, int end,
                                                     int lane, FragmentA (&to)[2]) {
    for (int half = 0; half < 2; ++half) {
      const int step = chunk * 2 + half;
      const Pairs four =
          chunk < end ? reinterpret_cast<const Pairs*>(pairs)[step * kWarp + lane] : Pairs{};
      for (int i = 0; i < 4; ++i) to[half].pair[i] = four.at[i];
    }
  }

  // The biases of the thread's columns, from a tile's last slot.
  template <typename Now>
  RUNNEL_DEVICE RUNNEL_INLINE Two bias(int at, int t) const {
    const float* biases = weights_.slot(at).biases(Now::chunks(Now::kGroups - 1));
    return *reinterpret_cast<const Two*>(biases + element_c(t % kWarp, 0).col);
  }

  // Refills slots that have been read. Thread t refills the one at position `slot` + at(t), or
  // none.
  template <typename Now, typename Next, typename At>
  RUNNEL_DEVICE RUNNEL_INLINE void make_room(const Now& share, const Next& next, int slot,
                                             const At& at) {
    typename Block::template Each<typename TileWeights<Block, Sizes>::Fill> fills;
    block_.each([&](int t) {
      if (at(t) < 0) return;
      fills[t] = weights_.behind(share, next, slot + at(t));
      weights_.expect(fills[t], slot + at(t));
    });
    block_.each([&](int t) { weights_.fetch(fills[t], slot + at(t)); });
  }

  // Calls use(activation). Relu is a compile-time constant there, so that it costs one instruction
  // for each number.
  template <typename Use>
  RUNNEL_DEVICE RUNNEL_INLINE static void for_activation(Activation activation, const Use& use) {
    if (activation == Activation::kRelu) {
      use(Activation::kRelu);
    } else {
      use(activation);
    }
  }

  // Computes the outputs from a tile's sums, and passes them to out(). sum(part, e) is a sum of the
  // thread.
  template <typename Out, typename Sum>
  RUNNEL_DEVICE RUNNEL_INLINE void give(int tile, Activation activation, const Two& bias, int t,
                                        const Out& out, const Sum& sum) {
    const auto whole = [&](int e) {
      const float joined = (sum(0, e) + sum(1, e)) + (sum(2, e) + sum(3, e));
      return activate_basic(activation, joined + bias.at[e % 2]);
    };
    for (int e = 0; e < 4; e += 2) {
      const Element at = element_c(t % kWarp, e);
      if (at.row < rows_) out(at.row, tile * kTileN + at.col, Two{{whole(e), whole(e + 1)}});
    }
  }

  Block& block_;
  Tile<Sizes>& tile_;
  TileWeights<Block, Sizes> weights_;
  const int rows_;
};

}  // namespace runnel::cuda
