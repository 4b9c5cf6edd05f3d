// Products of a tile's rows with a block's part of a weight, with the sums of matmul.h: four warps
// to a tile of outputs, each with every fourth chunk of inputs. Weights are on their way to
// registers a batch ahead, from one product to the next across the barriers between them: a batch
// is 32 registers of a thread, whatever the product.
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

// Which weights, and so which batches: in bf16 of up to 256 inputs, four tiles of 8 outputs to four
// warps at once; of up to 1024, one; in fp32, a tile of 16 outputs to all eight, 128 inputs at
// once.
enum class ProductForm : uint8_t { kNarrow, kDeep, kFp32 };

// A product and the tiles of its outputs that are a block's.
struct Share {
  ProductForm form = ProductForm::kNarrow;
  const void* panels = nullptr;
  const float* bias = nullptr;  // [out]
  int in = 0;
  int out = 0;
  int begin = 0;
  int end = 0;
  int heads = 0;  // > 0: tiles count through queries, keys and values of head after head
  int first_head = 0;

  // Where the weight has tile `j` of the block's counting.
  RUNNEL_DEVICE int tile(int j) const {
    constexpr int kTiles = kTileHeadSize / kTileN;
    if (heads == 0) return j;
    return (j / kTiles % 3 * heads + first_head + j / (3 * kTiles)) * kTiles + j % kTiles;
  }
};

RUNNEL_DEVICE constexpr int product_columns(ProductForm form) {
  return form == ProductForm::kFp32 ? 2 * kTileN : kTileN;
}

// Block `rank`'s part of a product, as a run of neighbouring tiles, `together` of which are never
// parted.
RUNNEL_DEVICE constexpr Share share_of(ProductForm form, const void* panels, const float* bias,
                                       int in, int out, int rank, int ranks, int together = 1) {
  const int columns = product_columns(form) * together;
  const int parts = (out + columns - 1) / columns;
  return {.form = form,
          .panels = panels,
          .bias = bias,
          .in = in,
          .out = out,
          .begin = parts * rank / ranks * together,
          .end = parts * (rank + 1) / ranks * together};
}

// Of queries, keys and values: those of the block's heads.
RUNNEL_DEVICE constexpr Share share_of_heads(const void* panels, const float* bias, int in,
                                             int heads, int rank, int ranks) {
  const int first = heads * rank / ranks;
  const int own = heads * (rank + 1) / ranks - first;
  return {.form = ProductForm::kNarrow,
          .panels = panels,
          .bias = bias,
          .in = in,
          .out = 3 * heads * kTileHeadSize,
          .begin = 0,
          .end = own * 3 * (kTileHeadSize / kTileN),
          .heads = heads,
          .first_head = first};
}

template <typename Block>
class TileProducts {
 public:
  RUNNEL_DEVICE TileProducts(Block& block, Tile& tile, int rows)
      : block_(block), tile_(tile), rows_(rows) {}

  // Thread t's part of the first batch sets out. Reads weights alone.
  RUNNEL_DEVICE void fetch(const Share& share, int t) {
    if (share.form == ProductForm::kFp32) {
      load_fp32(share, 0, t, ahead_[t]);
    } else if (share.form == ProductForm::kDeep) {
      load<8>(share, 0, t, ahead_[t]);
    } else {
      load<2>(share, 0, t, ahead_[t]);
    }
  }

  // What has been fetched, times `pairs` (tile_pair_index()): gives out(row, column, two) for every
  // live row and two neighbouring columns, as the block counts them. Nothing is said about when
  // other threads see what out() wrote. kPer: chunks of a warp.
  template <int kPer, typename Out>
  RUNNEL_DEVICE void run(const Share& share, const uint32_t* pairs, Activation activation,
                         const Out& out) {
    constexpr int kTiles = kAhead / kPer;
    const int chunks = share.in / kChunkBf16;
    const int batches = (share.end - share.begin + 2 * kTiles - 1) / (2 * kTiles);
    for (int batch = 0; batch < batches; ++batch) {
      typename Block::template Each<Ahead> now;
      typename Block::template Each<Sums<kTiles>> sums;
      block_.each([&](int t) {
        now[t] = ahead_[t];
        if (batch + 1 < batches) load<kPer>(share, batch + 1, t, ahead_[t]);
      });
      for (int r = 0; r < kPer; ++r) {
        typename Block::template Each<Inputs> a;
        block_.each([&](int t) {
          const int chunk = r * kMatmulWarps + t / kWarp % kMatmulWarps;
          if (chunk < chunks) a[t] = inputs(pairs, chunk, t % kWarp);
        });
        for (int half = 0; half < 2; ++half) {
          for (int i = 0; i < kTiles; ++i) {
            block_.mma([&](int t) -> FragmentC& { return sums[t].at[i]; },
                       [&](int t) -> const FragmentA& { return a[t].at[half]; },
                       [&](int t) -> const FragmentB& { return now[t].at[i * kPer + r][half]; });
          }
        }
      }
      finish<kTiles>(share, batch, activation, now, sums, out);
    }
  }

  // The same in fp32, from `columns` [in][16 rows].
  template <typename Out>
  RUNNEL_DEVICE void run_fp32(const Share& share, const float* columns, Activation activation,
                              const Out& out) {
    const int rounds = rounds_fp32(share);
    const int batches = (share.end - share.begin) * rounds;
    for (int batch = 0; batch < batches;) {
      typename Block::template Each<Ahead> now;
      typename Block::template Each<Quad> sums;
      for (int round = 0; round < rounds; ++round, ++batch) {
        block_.each([&](int t) {
          now[t] = ahead_[t];
          if (batch + 1 < batches) load_fp32(share, batch + 1, t, ahead_[t]);
          const float* x = columns + t / 128 * 8 + t % kWarp / 16 * 4;
          for (int c = 0; c < kChunksFp32; ++c) {
            const int in = chunk_fp32(round, t / kWarp % kMatmulWarps, c);
            if (in < share.in) add_chunk(x + in * kTileRows, now[t], c, sums[t]);
          }
        });
      }
      finish_fp32(share.begin + batch / rounds - 1, activation, now, sums, out);
    }
  }

 private:
  static constexpr int kAhead = 8;  // chunks that a thread has on their way

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

  RUNNEL_DEVICE static Two bias_of(const Share& share, int column) {
    return {{column < share.out ? share.bias[column] : 0.0F,
             column + 1 < share.out ? share.bias[column + 1] : 0.0F}};
  }

  // Tile `i` of those that four warps have in a batch.
  template <int kTiles>
  RUNNEL_DEVICE static int tile_of(const Share& share, int batch, int i, int four) {
    return share.begin + (batch * kTiles + i) * 2 + four;
  }

  template <int kPer>
  RUNNEL_DEVICE void load(const Share& share, int batch, int t, Ahead& to) const {
    constexpr int kTiles = kAhead / kPer;
    const int chunks = share.in / kChunkBf16;
    const int warp = t / kWarp;
    for (int i = 0; i < kTiles; ++i) {
      const int j = tile_of<kTiles>(share, batch, i, warp / kMatmulWarps);
      const Pairs* panel = static_cast<const Pairs*>(share.panels) +
                           int64_t{share.tile(j)} * chunks * kWarp + t % kWarp;
      for (int r = 0; r < kPer; ++r) {
        const int chunk = r * kMatmulWarps + warp % kMatmulWarps;
        const Pairs pairs = j < share.end && chunk < chunks ? panel[chunk * kWarp] : Pairs{};
        for (int p = 0; p < 4; ++p) to.at[i * kPer + r][p / 2].pair[p % 2] = pairs.at[p];
      }
    }
    for (int n = 0; n < 2; ++n) {  // of what the thread will join
      const Joined at = joined<kTiles>(t + n * kTileThreads);
      const int j = tile_of<kTiles>(share, batch, at.tile % kTiles, at.tile / kTiles);
      to.bias[n] = at.tile < 2 * kTiles && j < share.end
                       ? bias_of(share, share.tile(j) * kTileN + at.column)
                       : Two{};
    }
  }

  // Two outputs of a batch: of which of its tiles, and where in it.
  struct Joined {
    int tile, row, column;
  };
  template <int kTiles>
  RUNNEL_DEVICE static Joined joined(int index) {
    return {index / (kTileM * kTileN / 2), index % (kTileM * kTileN / 2) / (kTileN / 2),
            index % (kTileN / 2) * 2};
  }

  // The four warps' sums meet in scratch, and go out. Scratch is in two halves, of which this batch
  // and the next one take one each, so that one barrier a batch is enough.
  template <int kTiles, typename Now, typename Sum, typename Out>
  RUNNEL_DEVICE void finish(const Share& share, int batch, Activation activation, Now& now,
                            Sum& sums, const Out& out) {
    constexpr int kSize = kTileM * kTileN;
    float* scratch = next_scratch();
    block_.phase([&](int t) {
      const int warp = t / kWarp;
      for (int i = 0; i < kTiles; ++i) {
        const int tile = warp / kMatmulWarps * kTiles + i;
        float* mine = scratch + (tile * kMatmulWarps + warp % kMatmulWarps) * kSize;
        for (int e = 0; e < 4; e += 2) {
          const Element at = element_c(t % kWarp, e);
          const FragmentC& c = sums[t].at[i];
          *reinterpret_cast<Two*>(mine + at.row * kTileN + at.col) = {{c.at[e], c.at[e + 1]}};
        }
      }
    });
    block_.each([&](int t) {
      for (int n = 0; n < 2; ++n) {
        const Joined at = joined<kTiles>(t + n * kTileThreads);
        const int j = tile_of<kTiles>(share, batch, at.tile % kTiles, at.tile / kTiles);
        if (at.tile >= 2 * kTiles || j >= share.end || at.row >= rows_) continue;
        const float* from = scratch + at.tile * kMatmulWarps * kSize + at.row * kTileN + at.column;
        out(at.row, j * kTileN + at.column, join(from, kSize, now[t].bias[n], activation));
      }
    });
  }

  template <typename Now, typename Sum, typename Out>
  RUNNEL_DEVICE void finish_fp32(int tile, Activation activation, Now& now, Sum& sums,
                                 const Out& out) {
    constexpr int kCols = 2 * kTileN;
    float* scratch = next_scratch();  // [warp of four][row][column]
    block_.phase([&](int t) {
      const int row = t / 128 * 8 + t % kWarp / 16 * 4;
      float* mine = scratch + t / kWarp % kMatmulWarps * kTileRows * kCols + t % 16;
      for (int i = 0; i < 4; ++i) mine[(row + i) * kCols] = sums[t].at[i];
    });
    block_.each([&](int t) {
      const int row = t / kTileN;
      const int column = t % kTileN * 2;
      if (row >= rows_) return;
      const Two two =
          join(scratch + row * kCols + column, kTileRows * kCols, now[t].bias[0], activation);
      out(row, tile * kCols + column, two);
    });
  }

  RUNNEL_DEVICE static Two join(const float* sums, int stride, Two bias, Activation activation) {
    return {{activate_basic(activation, join_warps(sums, stride) + bias.at[0]),
             activate_basic(activation, join_warps(sums + 1, stride) + bias.at[1])}};
  }

  RUNNEL_DEVICE float* next_scratch() {
    half_ = 1 - half_;
    return tile_.scratch + half_ * (kTileScratch / 2);
  }

  // ---- fp32: batches of 4 chunks of 8 inputs, in each of four warps, of one tile after the other

  static constexpr int kChunksFp32 = 4 * kAhead / kChunkFp32;  // of a batch

  RUNNEL_DEVICE static int rounds_fp32(const Share& share) {
    constexpr int kInputs = kMatmulWarps * kChunksFp32 * kChunkFp32;
    return (share.in + kInputs - 1) / kInputs;
  }
  // The first input of a warp's chunk `c` of a round.
  RUNNEL_DEVICE static int chunk_fp32(int round, int warp, int c) {
    return ((round * kChunksFp32 + c) * kMatmulWarps + warp) * kChunkFp32;
  }
  RUNNEL_DEVICE void load_fp32(const Share& share, int batch, int t, Ahead& to) const {
    const int rounds = rounds_fp32(share);
    const int tile = share.begin + batch / rounds;
    to = {};  // or what was on its way would go on taking registers
    if (tile >= share.end) return;
    const int64_t panel = tile * 2 * kTileN / kPanelCols;
    const uint32_t* weights = static_cast<const uint32_t*>(share.panels) +
                              panel * share.in * kPanelCols + tile * 2 * kTileN % kPanelCols +
                              t % 16;
    for (int c = 0; c < kChunksFp32; ++c) {
      const int in = chunk_fp32(batch % rounds, t / kWarp % kMatmulWarps, c);
      if (in >= share.in) continue;  // the number of inputs is a multiple of a chunk
      for (int i = 0; i < kChunkFp32; ++i) {
        to.bits(c * kChunkFp32 + i) = weights[(in + i) * kPanelCols];
      }
    }
    to.bias[0] = bias_of(share, tile * 2 * kTileN + t % kTileN * 2);
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
  Tile& tile_;
  const int rows_;
  int half_ = 0;
  typename Block::template Each<Ahead> ahead_;
};

}  // namespace runnel::cuda
