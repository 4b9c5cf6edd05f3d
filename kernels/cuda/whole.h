// The whole network in one kernel. Several blocks of a cluster compute a tile of up to 16 rows
// through all layers and steps, including sampling. Each block computes a part of the outputs of
// every product, and some heads. The part that the other blocks need is contiguous, and is sent 16
// bytes at a time to the same place in their shared memory while they meet. A cluster has one tile
// or several; blocks with the same part of different tiles receive its weights together. The sums
// are those of the kernels for single operations, and so are the bits. So a batch may be computed
// either way.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_norm.h"
#include "kernels/cuda/tile_product.h"
#include "kernels/cuda/tile_recur.h"
#include "kernels/cuda/tile_sample.h"
#include "kernels/cuda/tile_weights.h"
#include "kernels/cuda/whole_args.h"
#include "kernels/device.h"

namespace runnel::cuda {

template <typename Block, typename Sizes>
class WholeRun {
 public:
  RUNNEL_DEVICE WholeRun(Block& block, const WholeArgs& args)
      : block_(block),
        args_(args),
        tile_(*block.template shared<Tile<Sizes>>()),
        rank_{block.rank() & ((1 << args.ranks_log) - 1), args.ranks_log},
        rows_(rows_of(args, first())),
        rows_log_(log_of(rows_)),
        products_(block, tile_, Companions::of_rank(block.rank(), rank_.log, block.ranks()), rows_),
        recurrence_(block, tile_, rows_, rank_, args.states),
        norm_(block, tile_, rows_, args.norm_eps),
        sampling_(block, tile_, args, rank_, rows_) {}

  RUNNEL_DEVICE RUNNEL_INLINE void run() {
    begin();
    for (int step = 0; step < args_.steps; ++step) {
      embed(step);
      for (int layer = 0; layer < args_.layers; ++layer) {
        attention(layer, step);
        feed_forward(layer, step);
      }
      predict(step);
      sampling_.sample(step);
    }
  }

 private:
  static constexpr int kWidth = Sizes::kWidth;
  // Whether the last linear2 and the predictor are split products.
  static constexpr bool kSplitEnd = Sizes::kHead != HeadKind::kCategorical;
  // The number of tiles of the hidden layer that make one step of the next product.
  static constexpr int kTogether = 2;
  static constexpr int kHiddenPairs = kTileRows * Sizes::kFfn / 2;

  // The tile's first row in the batch, and its first block in the cluster. They are computed each
  // time they are needed, because registers are scarce.
  RUNNEL_DEVICE int first() const {
    return static_cast<int>(block_.index() >> rank_.log) * args_.tile_rows;
  }
  RUNNEL_DEVICE int first_rank() const { return block_.rank() & -rank_.of(); }

  // The rows of a tile. The last tiles of a cluster may have none.
  RUNNEL_DEVICE static int rows_of(const WholeArgs& args, int first) {
    const int left = args.rows > first ? args.rows - first : 0;
    return left < args.tile_rows ? left : args.tile_rows;
  }

  RUNNEL_DEVICE static int log_of(int rows) {
    int log = 0;
    while (1 << log < rows) ++log;
    return log;
  }

  // ---- this block's shares of the network

  RUNNEL_DEVICE int heads() const { return rank_.count(Sizes::kHeads); }

  RUNNEL_DEVICE auto qkv(int layer) const {
    return share_of_heads<kWidth, Sizes::kHeads>(args_.layer[layer].qkv, rank_);
  }
  RUNNEL_DEVICE auto out(int layer) const {
    return share<Sizes::kColumns>(args_.layer[layer].out, kWidth);
  }
  RUNNEL_DEVICE auto linear1(int layer) const {
    return share<kWidth>(args_.layer[layer].linear1, Sizes::kFfn, kTogether);
  }
  RUNNEL_DEVICE auto linear2(int layer) const {
    return share<Sizes::kFfn>(args_.layer[layer].linear2, kWidth);
  }
  // The shares that end a step, and the share after the last step.
  RUNNEL_DEVICE auto linear2_last() const {
    return share<Sizes::kFfn, kSplitEnd>(args_.layer[args_.layers - 1].linear2, kWidth);
  }
  RUNNEL_DEVICE auto predictor() const {
    return share<kWidth, kSplitEnd>(args_.predictor, args_.head.width());
  }
  RUNNEL_DEVICE auto next_step(int step) const {
    auto first = qkv(0);
    if (step + 1 == args_.steps) first.tiles = 0;
    return first;
  }
  template <int in, bool split = false>
  RUNNEL_DEVICE auto share(const void* weight, int out, int together = 1) const {
    return share_of<in, split>(weight, out, rank_, together);
  }

  // ---- a step

  RUNNEL_DEVICE RUNNEL_INLINE void begin() {
    block_.each([&](int t) {
      products_.prepare(t);
      recurrence_.prepare(t);
    });
    block_.gather(rank_.of());
    products_.begin(qkv(0));
    products_.turn_to(qkv(0), out(0));
    block_.phase([&](int t) {
      if (t >= kTileRows) return;
      const int32_t slot = t < rows_ ? args_.slot[first() + t] : -1;
      tile_.slot[t] = slot;
      tile_.value[t] = slot < 0 ? kFrozen : args_.control[slot].pending;
      tile_.position[t] = slot < 0 ? 0 : args_.control[slot].position;
    });
  }

  RUNNEL_DEVICE RUNNEL_INLINE void embed(int step) {
    block_.phase([&](int t) {
      constexpr int kAcross = kWidth / 2;  // pairs of a row
      for (int i = t; i < rows_ * kAcross; i += kTileThreads) {
        const int row = i / kAcross;
        const int k = i % kAcross * 2;
        Two two{};
        if (tile_.live(row)) {
          const int64_t position = tile_.position[row] + step;
          require_known(block_, args_.embedding, tile_.value[row], position);
          two = {{embedded(args_.embedding, tile_.value[row], position, k),
                  embedded(args_.embedding, tile_.value[row], position, k + 1)}};
        }
        *reinterpret_cast<Two*>(tile_.x + row * kWidth + k) = two;
        tile_.x_pairs[tile_pair_index(row, k)] = block_.pack(two.at[0], two.at[1]);
      }
    });
  }

  RUNNEL_DEVICE RUNNEL_INLINE void attention(int layer, int step) {
    // This must not be earlier, because a LayerNorm that waits for its scale would wait for these
    // loads, too.
    block_.each([&](int t) { recurrence_.fetch(layer * args_.layer_bytes, step, t); });
    products_.run(qkv(layer), out(layer), {tile_.x_pairs}, Activation::kNone,
                  [&](int row, int column, Two two) {
                    float* to = tile_.wide + row * heads() * 3 * kTileHeadSize + column;
                    *reinterpret_cast<Two*>(to) = two;
                  });
    block_.phase([](int) {});
    recurrence_.run(layer * args_.layer_bytes, step, [&](int row, int column, Two two) {
      tile_.attended[tile_pair_index(row, column)] = block_.pack(two.at[0], two.at[1]);
    });
    constexpr int kSteps = kTileHeadSize / kTileK;  // steps of a head
    block_.meet(bytes_of((Sizes::kHeads - heads()) * kSteps, parts_of_pairs()), [&] {
      block_.each([&](int t) {
        send_pairs(tile_.attended, rank_.first(Sizes::kHeads) * kSteps,
                   rank_.end(Sizes::kHeads) * kSteps, t);
      });
      products_.turn_to(out(layer), linear1(layer));
    });
    products_.run(out(layer), linear1(layer), {tile_.attended}, Activation::kNone, project());
    const WholeNorm& norm = args_.layer[layer].norm1;
    block_.meet(bytes_projected(out(layer)), [&] {
      block_.each([&](int t) {
        send_projected(out(layer), t);
        norm_.fetch(norm.scale, norm.shift, t);
      });
      products_.turn_to(linear1(layer), after_linear1(layer));
    });
    norm_.run(true);
  }

  RUNNEL_DEVICE bool is_last(int layer) const { return layer + 1 == args_.layers; }
  RUNNEL_DEVICE auto after_linear1(int layer) const {
    return either(!is_last(layer), linear2(layer), linear2_last());
  }
  RUNNEL_DEVICE auto after_linear2(int layer) const {
    return either(!is_last(layer), qkv(is_last(layer) ? layer : layer + 1), predictor());
  }

  // In the last layer, also keeps the remainders of the hidden layer's rounding, if they are
  // needed.
  RUNNEL_DEVICE RUNNEL_INLINE void feed_forward(int layer, int step) {
    const bool in_parts = kSplitEnd && is_last(layer);
    const auto own = linear1(layer);
    products_.run(own, after_linear1(layer), {tile_.x_pairs}, args_.activation,
                  [&](int row, int column, Two two) {
                    const int at = tile_pair_index(row, column);
                    if (!in_parts) {
                      hidden()[at] = block_.pack(two.at[0], two.at[1]);
                      return;
                    }
                    const SplitPair pair = split(block_, two);
                    hidden()[at] = pair.rounded;
                    hidden_rest()[at] = pair.rest;
                  });
    const int begin = own.begin / kTogether;
    const int steps = own.tiles / kTogether;
    const int others = (Sizes::kFfn / kTileK - steps) * (in_parts ? 2 : 1);
    block_.meet(bytes_of(others, parts_of_pairs()), [&] {
      block_.each([&](int t) {
        send_pairs(hidden(), begin, begin + steps, t);
        if (in_parts) send_pairs(hidden_rest(), begin, begin + steps, t);
      });
      if (in_parts) {
        products_.turn_to(linear2_last(), predictor());
      } else {
        products_.turn_to(linear2(layer), after_linear2(layer));
      }
    });
    if (in_parts) {
      products_.run(linear2_last(), predictor(), {hidden(), hidden_rest()}, Activation::kNone,
                    project());
    } else {
      products_.run(linear2(layer), after_linear2(layer), {hidden()}, Activation::kNone, project());
    }
    const WholeNorm& norm = args_.layer[layer].norm2;
    block_.meet(bytes_projected(linear2(layer)), [&] {
      block_.each([&](int t) {
        send_projected(linear2(layer), t);
        norm_.fetch(norm.scale, norm.shift, t);
      });
      if (is_last(layer)) {
        products_.turn_to(predictor(), next_step(step));
      } else {
        products_.turn_to(qkv(layer + 1), out(layer + 1));
      }
    });
    norm_.run(true);
  }

  RUNNEL_DEVICE uint32_t* hidden() const { return reinterpret_cast<uint32_t*>(tile_.wide); }
  RUNNEL_DEVICE uint32_t* hidden_rest() const { return hidden() + kHiddenPairs; }

  RUNNEL_DEVICE auto project() {
    return [this](int row, int column, Two two) {
      *reinterpret_cast<Two*>(tile_.projected + projected_index(row, column)) = two;
    };
  }

  // ---- data that blocks send each other, 16 bytes at a time

  // The bytes of `pieces` pieces of `parts` parts each, which other blocks send.
  RUNNEL_DEVICE static int bytes_of(int pieces, int parts) { return pieces * parts * 16; }

  // Sends the block's pieces [begin, end) to all other blocks. A piece has 2^parts_log parts, the
  // first `parts` of which are sent: the 16 bytes at at(piece, part). Each warp sends 32 parts at a
  // time, some of them to some of the blocks.
  template <typename At>
  RUNNEL_DEVICE RUNNEL_INLINE void send_pieces(int begin, int end, int parts, int parts_log, int t,
                                               const At& at) {
    const int log = rank_.of() < kTileWarps ? rank_.log : kTileWarpsLog;
    const int blocks = 1 << log;  // a warp sends to every `blocks`-th block
    const int warp = t / kWarp;
    const int all = (end - begin) << parts_log;
    RUNNEL_UNROLL_PAIRS
    for (int i = (warp >> log) * kWarp + t % kWarp; i < all; i += kTileThreads >> log) {
      const int part = i & ((1 << parts_log) - 1);
      if (part >= parts) continue;
      Pairs* const from = at(begin + (i >> parts_log), part);
      const Pairs held = *from;
      RUNNEL_ROLL
      for (int to = warp & (blocks - 1); to < rank_.of(); to += blocks) {
        if (to != rank_.at) block_.send(first_rank() + to, from, held);
      }
    }
  }

  // Sends steps [begin, end) of pairs (tile_pair_index()): for each row below 8, four parts with
  // numbers of rows r and r + 8.
  RUNNEL_DEVICE RUNNEL_INLINE void send_pairs(uint32_t* pairs, int begin, int end, int t) {
    const int log = rows_log_ < 3 ? rows_log_ : 3;
    send_pieces(begin, end, parts_of_pairs(), log + 2, t, [&](int step, int part) {
      return reinterpret_cast<Pairs*>(pairs + (step * kWarp + part) * 4);
    });
  }
  RUNNEL_DEVICE int parts_of_pairs() const { return (rows_ < 8 ? rows_ : 8) * 4; }

  // Sends the share's projected columns, four columns of all rows at a time.
  template <typename Product>
  RUNNEL_DEVICE RUNNEL_INLINE void send_projected(const Product& share, int t) {
    const int begin = share.begin * 2;
    send_pieces(begin, begin + share.tiles * 2, rows_, rows_log_, t, [&](int four, int row) {
      return reinterpret_cast<Pairs*>(tile_.projected + projected_index(row, four * 4));
    });
  }
  template <typename Product>
  RUNNEL_DEVICE int bytes_projected(const Product& share) const {
    return bytes_of(kWidth / kTileN - share.tiles, 2 * rows_);
  }

  // ---- the end of a step

  // Computes the head's outputs, and sends each row's outputs to the block that samples the row.
  RUNNEL_DEVICE RUNNEL_INLINE void predict(int step) {
    if (args_.final_norm.scale != nullptr) {
      block_.each([&](int t) { norm_.fetch(args_.final_norm.scale, args_.final_norm.shift, t); });
      norm_.run(false);
    }
    if constexpr (kSplitEnd) split_x();
    products_.run(predictor(), next_step(step), {tile_.x_pairs, rest_of_x()}, Activation::kNone,
                  [&](int row, int column, Two two) {
                    const int width = args_.head.width();
                    float* to = tile_.wide + (row >> rank_.log) * width + column;
                    for (int i = 0; i < 2 && column + i < width; ++i) {
                      block_.send(first_rank() + sampling_.owner(row), to + i, two.at[i]);
                    }
                  });
    const int own =
        (rows_ - sampling_.first_sampled() + rank_.of() - 1) >> rank_.log;  // rows that it samples
    block_.meet(own * args_.head.width() * 4, [&] {
      if (step + 1 < args_.steps) products_.turn_to(qkv(0), out(0));
    });
  }

  RUNNEL_DEVICE uint32_t* rest_of_x() const { return reinterpret_cast<uint32_t*>(tile_.projected); }

  RUNNEL_DEVICE RUNNEL_INLINE void split_x() {
    block_.phase([&](int t) {
      constexpr int kAcross = kWidth / 2;  // pairs of a row
      for (int i = t; i < rows_ * kAcross; i += kTileThreads) {
        const int row = i / kAcross;
        const int k = i % kAcross * 2;
        const Two two = *reinterpret_cast<const Two*>(tile_.x + row * kWidth + k);
        rest_of_x()[tile_pair_index(row, k)] = split(block_, two).rest;
      }
    });
  }

  Block& block_;
  const WholeArgs& args_;
  Tile<Sizes>& tile_;
  const Rank rank_;  // of this block among the tile's blocks
  const int rows_;
  const int rows_log_;  // of the lowest power of two that is not below rows_
  TileProducts<Block, Sizes> products_;
  TileRecurrence<Block, Sizes> recurrence_;
  TileNorm<Block, Sizes> norm_;
  TileSampling<Block, Sizes> sampling_;
};

template <int width, int heads, int ffn, HeadKind head>
struct WholeKernel {
  using Args = WholeArgs;
  using Sizes = TileSizes<width, heads, ffn, head>;
  static constexpr int kThreads = kTileThreads;
  static constexpr int kResident = 1;
  static constexpr bool kClusters = true;

  static constexpr Launch launch(int64_t clusters, int64_t cluster) {
    return {.blocks = clusters * cluster, .shared_bytes = sizeof(Tile<Sizes>), .cluster = cluster};
  }

  template <typename Block>
  RUNNEL_DEVICE RUNNEL_INLINE static void run(Block& block, const Args& args) {
    WholeRun<Block, Sizes> whole(block, args);
    whole.run();
  }
};

}  // namespace runnel::cuda
