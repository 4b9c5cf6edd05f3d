// Products of a tile's rows with a block's part of a weight, with the sums of matmul.h: four warps
// to a tile of outputs, each with every fourth chunk of inputs. Weights are on their way to
// registers a batch ahead, from one product to the next across the barriers between them: a batch
// is at most 32 registers of a thread, whatever the product, and as soon as one has been used the
// next batch's takes its place.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/elementary.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/tile.h"
#include "kernels/device.h"

namespace runnel::cuda {

// Which block of a cluster of 2^log blocks this is.
struct Rank {
  int at = 0;
  int log = 0;

  RUNNEL_DEVICE constexpr int of() const { return 1 << log; }
  // The first of the block's share of `parts`; the first of the next one's is where it ends.
  RUNNEL_DEVICE constexpr int first(int parts) const { return parts * at >> log; }
  RUNNEL_DEVICE constexpr int end(int parts) const { return parts * (at + 1) >> log; }
};

// A block's share of a product with kIn inputs: a run of neighbouring tiles of kColumns outputs.
template <int in, int columns = kTileN>
struct Share {
  static constexpr int kIn = in;
  static constexpr int kColumns = columns;

  const void* panels = nullptr;
  const float* bias = nullptr;  // [out], and zeros up to a whole tile
  int begin = 0;
  int end = 0;

  RUNNEL_DEVICE int tile(int j) const { return j; }
};

// Of queries, keys and values, those of the block's heads: tiles count through queries, keys and
// values of head after head.
template <int in, int heads>
struct HeadShare {
  static constexpr int kIn = in;
  static constexpr int kColumns = kTileN;

  const void* panels = nullptr;
  const float* bias = nullptr;
  int begin = 0;
  int end = 0;
  int first_head = 0;

  // Where the weight has tile `j` of the block's counting.
  RUNNEL_DEVICE int tile(int j) const {
    constexpr int kTiles = kTileHeadSize / kTileN;
    const auto at = static_cast<unsigned>(j);
    return static_cast<int>(at / kTiles % 3 * heads + at / (3 * kTiles)) * kTiles +
           static_cast<int>(at % kTiles) + first_head * kTiles;
  }
};

// Block `rank`'s share of `out` outputs, `together` tiles of which are never parted.
template <int in, int columns = kTileN>
RUNNEL_DEVICE constexpr Share<in, columns> share_of(const void* panels, const float* bias, int out,
                                                    Rank rank, int together = 1) {
  const int parts = (out + columns * together - 1) / (columns * together);
  return {panels, bias, rank.first(parts) * together, rank.end(parts) * together};
}
template <int in, int heads>
RUNNEL_DEVICE constexpr HeadShare<in, heads> share_of_heads(const void* panels, const float* bias,
                                                            Rank rank) {
  constexpr int kTiles = 3 * (kTileHeadSize / kTileN);
  const int first = rank.first(heads);
  return {panels, bias, 0, (rank.end(heads) - first) * kTiles, first};
}

template <typename Block, typename Sizes>
class TileProducts {
 public:
  RUNNEL_DEVICE TileProducts(Block& block, Tile<Sizes>& tile, int rows)
      : block_(block), tile_(tile), rows_(rows) {}

  // Thread t's part of the first batch sets out. Reads weights alone.
  template <typename Product>
  RUNNEL_DEVICE void fetch(const Product& share, int t) {
    RUNNEL_UNROLL
    for (int r = 0; r < Split<Product>::kPer; ++r) load(share, 0, r, t);
    load_bias(share, 0, t);
  }
  template <typename Product>
  RUNNEL_DEVICE void fetch_fp32(const Product& share, int t) {
    load_fp32(share, share.begin, 0, t);
    ahead_[t].bias[0] = bias_fp32(share, share.begin, t);
  }

  // What has been fetched, times `pairs` (tile_pair_index()): gives out(row, column, two) for every
  // live row and two neighbouring columns, as the block counts them. Nothing is said about when
  // other threads see what out() wrote.
  template <typename Product, typename Out>
  RUNNEL_DEVICE void run(const Product& share, const uint32_t* pairs, Activation activation,
                         const Out& out) {
    using Parts = Split<Product>;
    const int tiles = share.end - share.begin;
    for (int batch = 0; batch * 2 * Parts::kTiles < tiles; ++batch) {
      typename Block::template Each<Sums<Parts::kTiles>> sums;
      RUNNEL_UNROLL
      for (int r = 0; r < Parts::kPer; ++r) {
        typename Block::template Each<Inputs> a;
        block_.each([&](int t) {
          const int chunk = Parts::chunk(r, t);
          if (chunk < Parts::kChunks) a[t] = inputs(pairs, chunk, t % kWarp);
        });
        for (int half = 0; half < 2; ++half) {
          for (int i = 0; i < Parts::kTiles; ++i) {
            block_.mma(
                [&](int t) -> FragmentC& { return sums[t].at[i]; },
                [&](int t) -> const FragmentA& { return a[t].at[half]; },
                [&](int t) -> const FragmentB& { return ahead_[t].at[i * Parts::kPer + r][half]; });
          }
        }
        block_.each([&](int t) { load(share, batch + 1, r, t); });
      }
      finish(share, batch, activation, sums, out);
    }
  }

  // The same in fp32, a tile of outputs to all eight warps, from `columns` [in][16 rows].
  template <typename Product, typename Out>
  RUNNEL_DEVICE void run_fp32(const Product& share, const float* columns, Activation activation,
                              const Out& out) {
    constexpr int kRounds = (Product::kIn + kRoundFp32 - 1) / kRoundFp32;
    for (int tile = share.begin; tile < share.end; ++tile) {
      typename Block::template Each<Quad> sums;
      for (int round = 0; round < kRounds; ++round) {
        block_.each([&](int t) {
          const float* x = columns + t / 128 * 8 + t % kWarp / 16 * 4;
          for (int c = 0; c < kChunksFp32; ++c) {
            const int in = chunk_fp32(round, t / kWarp % kMatmulWarps, c);
            if (in < Product::kIn) add_chunk(x + in * kTileRows, ahead_[t], c, sums[t]);
          }
          const bool last = round + 1 == kRounds;
          load_fp32(share, last ? tile + 1 : tile, last ? 0 : round + 1, t);
        });
      }
      finish_fp32(share, tile, activation, sums, out);
    }
  }

 private:
  static constexpr int kAhead = 8;  // chunks that a thread has on their way, at most

  // How a product's chunks are shared out to four warps: kPer to each, of kTiles tiles at once.
  template <typename Product>
  struct Split {
    static constexpr int kChunks = Product::kIn / kChunkBf16;
    static constexpr int kPer = (kChunks + kMatmulWarps - 1) / kMatmulWarps;
    static constexpr int kTiles = kAhead / kPer < 4 ? kAhead / kPer : 4;
    static_assert(Product::kIn % kChunkBf16 == 0 && kPer <= kAhead);

    // The chunk that thread t's warp has as its r-th.
    RUNNEL_DEVICE static int chunk(int r, int t) { return r * kMatmulWarps + warp_of_four(t); }
    // Tile `i` of those that four warps have in a batch.
    RUNNEL_DEVICE static int tile(const Product& share, int batch, int i, int four) {
      return share.begin + (batch * kTiles + i) * 2 + four;
    }
  };
  RUNNEL_DEVICE static int warp_of_four(int t) { return t / kWarp % kMatmulWarps; }

  struct Ahead {
    FragmentB at[kAhead][2];
    Two bias[2];

    RUNNEL_DEVICE uint32_t& bits(int i) { return at[i / 4][i / 2 % 2].pair[i % 2]; }
  };
  struct Inputs {
    FragmentA at[2];
  };
  template <int kTiles>
  struct Sums {
    FragmentC at[kTiles];
  };

  RUNNEL_DEVICE static Inputs inputs(const uint32_t* pairs, int chunk, int lane) {
    Inputs inputs;
    for (int half = 0; half < 2; ++half) {
      const Pairs four = reinterpret_cast<const Pairs*>(pairs)[(chunk * 2 + half) * kWarp + lane];
      for (int i = 0; i < 4; ++i) inputs.at[half].pair[i] = four.at[i];
    }
    return inputs;
  }

  // Thread t's part of the warps' r-th chunks; zeros behind the share's end, or what was there
  // would go on taking registers.
  template <typename Product>
  RUNNEL_DEVICE void load(const Product& share, int batch, int r, int t) {
    using Parts = Split<Product>;
    const int chunk = Parts::chunk(r, t);
    for (int i = 0; i < Parts::kTiles; ++i) {
      const int j = Parts::tile(share, batch, i, t / kWarp / kMatmulWarps);
      const Pairs* panel = static_cast<const Pairs*>(share.panels) +
                           (share.tile(j) * Parts::kChunks + chunk) * kWarp + t % kWarp;
      const Pairs pairs = j < share.end && chunk < Parts::kChunks ? *panel : Pairs{};
      for (int p = 0; p < 4; ++p)
        ahead_[t].at[i * Parts::kPer + r][p / 2].pair[p % 2] = pairs.at[p];
    }
  }
  // Of what the thread will join.
  template <typename Product>
  RUNNEL_DEVICE void load_bias(const Product& share, int batch, int t) {
    using Parts = Split<Product>;
    for (int n = 0; n < kJoins<Parts::kTiles>; ++n) {
      const Joined at = joined<Parts::kTiles>(t + n * kTileThreads);
      const int j = Parts::tile(share, batch, at.tile % Parts::kTiles, at.tile / Parts::kTiles);
      ahead_[t].bias[n] = at.tile < 2 * Parts::kTiles && j < share.end
                              ? bias_at(share, share.tile(j) * kTileN + at.column)
                              : Two{};
    }
  }
  template <typename Product>
  RUNNEL_DEVICE static Two bias_at(const Product& share, int column) {
    return *reinterpret_cast<const Two*>(share.bias + column);
  }

  // Two outputs of a batch: of which of its tiles, and where in it.
  struct Joined {
    int tile, row, column;
  };
  static constexpr int kPairs = kTileM * kTileN / 2;  // of a tile
  template <int kTiles>
  static constexpr int kJoins = (2 * kTiles * kPairs + kTileThreads - 1) / kTileThreads;
  template <int kTiles>
  RUNNEL_DEVICE static Joined joined(int index) {
    return {index / kPairs, index % kPairs / (kTileN / 2), index % (kTileN / 2) * 2};
  }

  // The four warps' sums meet in scratch, and go out. Scratch is in two halves, of which this batch
  // and the next one take one each, so that one barrier a batch is enough.
  template <typename Product, typename Sum, typename Out>
  RUNNEL_DEVICE void finish(const Product& share, int batch, Activation activation, Sum& sums,
                            const Out& out) {
    constexpr int kTiles = Split<Product>::kTiles;
    constexpr int kSize = kTileM * kTileN;
    static_assert(2 * kTiles * kMatmulWarps * kSize <= kTileScratch / 2);
    float* scratch = next_scratch();
    block_.phase([&](int t) {
      for (int i = 0; i < kTiles; ++i) {
        const int tile = t / kWarp / kMatmulWarps * kTiles + i;
        float* mine = scratch + (tile * kMatmulWarps + warp_of_four(t)) * kSize;
        for (int e = 0; e < 4; e += 2) {
          const Element at = element_c(t % kWarp, e);
          const FragmentC& c = sums[t].at[i];
          *reinterpret_cast<Two*>(mine + at.row * kTileN + at.col) = {{c.at[e], c.at[e + 1]}};
        }
      }
    });
    block_.each([&](int t) {
      for (int n = 0; n < kJoins<kTiles>; ++n) {
        const Joined at = joined<kTiles>(t + n * kTileThreads);
        const int j = Split<Product>::tile(share, batch, at.tile % kTiles, at.tile / kTiles);
        if (at.tile >= 2 * kTiles || j >= share.end || at.row >= rows_) continue;
        const float* from = scratch + at.tile * kMatmulWarps * kSize + at.row * kTileN + at.column;
        out(at.row, j * kTileN + at.column, join(from, kSize, ahead_[t].bias[n], activation));
      }
      load_bias(share, batch + 1, t);
    });
  }

  template <typename Product, typename Sum, typename Out>
  RUNNEL_DEVICE void finish_fp32(const Product& share, int tile, Activation activation, Sum& sums,
                                 const Out& out) {
    constexpr int kCols = Product::kColumns;
    float* scratch = next_scratch();  // [warp of four][row][column]
    block_.phase([&](int t) {
      const int row = t / 128 * 8 + t % kWarp / 16 * 4;
      float* mine = scratch + warp_of_four(t) * kTileRows * kCols + t % 16;
      for (int i = 0; i < 4; ++i) mine[(row + i) * kCols] = sums[t].at[i];
    });
    block_.each([&](int t) {
      const int row = t / kTileN;
      const int column = t % kTileN * 2;
      const float* from = scratch + row * kCols + column;
      if (row < rows_) {
        out(row, tile * kCols + column,
            join(from, kTileRows * kCols, ahead_[t].bias[0], activation));
      }
      ahead_[t].bias[0] = bias_fp32(share, tile + 1, t);
    });
  }

  RUNNEL_DEVICE static Two join(const float* sums, int stride, Two bias, Activation activation) {
    Two part[kMatmulWarps];
    for (int w = 0; w < kMatmulWarps; ++w) {
      part[w] = *reinterpret_cast<const Two*>(sums + w * stride);
    }
    const auto whole = [&](int i) {
      const float sum = (part[0].at[i] + part[1].at[i]) + (part[2].at[i] + part[3].at[i]);
      return activate_basic(activation, sum + bias.at[i]);
    };
    return {{whole(0), whole(1)}};
  }

  RUNNEL_DEVICE float* next_scratch() {
    half_ = 1 - half_;
    return tile_.scratch + half_ * (kTileScratch / 2);
  }

  // ---- fp32: rounds of 4 chunks of 8 inputs, in each of four warps, of one tile after the other

  static constexpr int kChunksFp32 = 4 * kAhead / kChunkFp32;  // of a round
  static constexpr int kRoundFp32 = kMatmulWarps * kChunksFp32 * kChunkFp32;

  // The first input of a warp's chunk `c` of a round.
  RUNNEL_DEVICE static int chunk_fp32(int round, int warp, int c) {
    return ((round * kChunksFp32 + c) * kMatmulWarps + warp) * kChunkFp32;
  }
  template <typename Product>
  RUNNEL_DEVICE void load_fp32(const Product& share, int tile, int round, int t) {
    const bool there = tile < share.end;
    const int column = tile * Product::kColumns;
    const uint32_t* weights = static_cast<const uint32_t*>(share.panels) +
                              column / kPanelCols * Product::kIn * kPanelCols +
                              column % kPanelCols + t % 16;
    for (int c = 0; c < kChunksFp32; ++c) {
      const int in = chunk_fp32(round, warp_of_four(t), c);
      for (int i = 0; i < kChunkFp32; ++i) {
        ahead_[t].bits(c * kChunkFp32 + i) =
            there && in < Product::kIn ? weights[(in + i) * kPanelCols] : 0;
      }
    }
  }
  template <typename Product>
  RUNNEL_DEVICE static Two bias_fp32(const Product& share, int tile, int t) {
    return tile < share.end ? bias_at(share, tile * Product::kColumns + t % kTileN * 2) : Two{};
  }
  // `x`: four rows of the chunk's inputs.
  RUNNEL_DEVICE static void add_chunk(const float* x, Ahead& weights, int c, Quad& sums) {
    for (int i = 0; i < kChunkFp32; ++i) {
      const Quad four = *reinterpret_cast<const Quad*>(x + i * kTileRows);
      const auto weight = bit_cast<float>(weights.bits(c * kChunkFp32 + i));
      for (int r = 0; r < Quad::kWidth; ++r) {
        sums.at[r] = std::fma(four.at[r], weight, sums.at[r]);
      }
    }
  }

  Block& block_;
  Tile<Sizes>& tile_;
  const int rows_;
  int half_ = 0;
  typename Block::template Each<Ahead> ahead_;
};

}  // namespace runnel::cuda
