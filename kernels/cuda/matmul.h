// y = activation(x W^T + b) * times + plus, in our own kernels, with one order of sums for any
// number of rows. The inputs are divided into chunks, which go round-robin to the four warps of a
// block. Each warp adds its chunks in ascending order, and the four sums are joined as ((0 + 1) +
// (2 + 3)) + b.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

// The epilogue of a product, with fp32 matrices of y's shape. Null: left out.
struct OutputEnd {
  Activation activation;
  const float* times;
  const float* plus;
  int64_t times_stride, plus_stride;

  RUNNEL_DEVICE float operator()(int64_t row, int column, float sum) const {
    float y = activate(activation, sum);
    if (times != nullptr) y *= times[row * times_stride + column];
    if (plus != nullptr) y += plus[row * plus_stride + column];
    return y;
  }
};

struct MatmulArgs {
  const float* x;
  int64_t x_stride;
  const void* panels;
  const float* bias;  // [out]
  int rows, in, out;
  StoredType blocks;  // the type of the weight's blocks; kF32 if it is not in blocks
  OutputEnd end;
  float* y;
  int64_t y_stride;
};

// A product with a second weight. Its end has an activation alone.
struct GluArgs {
  MatmulArgs gate;
  const void* up_panels;
  const float* up_bias;
};

// How a kernel reads weights: one, one in two parts (Precision::kSplit), or two (Product::up).
enum class WeightForm : uint8_t { kOne, kSplit, kTwo };

inline constexpr int kMatmulWarps = 4;

// Constants for the choice of tiles.
inline constexpr int64_t kEnoughBlocks = 128;  // about the number of multiprocessors
inline constexpr int kFewRows = 4;  // up to this many rows have few bytes compared with the weights

// A product with more bytes of weights does not prefetch them, because the prefetch made a launch
// of a single product slower on an H100. In a launch of several products, the limit applies to
// each.
inline constexpr int64_t kMostPrefetched = int64_t{6} << 20;

// Joins the warps' sums of one output. They are `stride` apart.
RUNNEL_DEVICE constexpr float join_warps(const float* sums, int stride) {
  return (sums[0] + sums[stride]) + (sums[2 * stride] + sums[3 * stride]);
}

// Joins the warps' sums, [warp][rows][cols] in shared memory, into y. The tile begins at (`row`,
// `col`).
template <typename Block>
RUNNEL_DEVICE void join_sums(Block& block, const MatmulArgs& args, int row, int col, int rows,
                             int cols) {
  const float* sums = block.template shared<float>();
  const int size = rows * cols;
  block.each([&](int t) {
    for (int i = t; i < size; i += kMatmulWarps * kWarp) {
      const int m = row + i / cols;
      const int n = col + i % cols;
      if (m >= args.rows || n >= args.out) continue;
      const float sum = join_warps(sums + i, size) + args.bias[n];
      args.y[m * args.y_stride + n] = args.end(m, n, sum);
    }
  });
}

// ---- fp32 ---------------------------------------------------------------------------------------

inline constexpr int kPanelCols = 32;  // one column for each lane
inline constexpr int kChunkFp32 = 8;   // the inputs of a chunk

// The index of element (out, in) of a weight. Panels have 32 outputs: [panel][in][32].
RUNNEL_DEVICE constexpr int64_t fp32_index(int in_size, int out, int in) {
  return (int64_t{out / kPanelCols} * in_size + in) * kPanelCols + out % kPanelCols;
}
RUNNEL_DEVICE constexpr int64_t fp32_elements(int in_size, int out_size) {
  return int64_t{(out_size + kPanelCols - 1) / kPanelCols} * kPanelCols * in_size;
}

// A weight as the bits of fp32 panels, zero padded.
inline std::vector<uint32_t> fp32_panels(HostTensor weight) {
  std::vector<uint32_t> panels(fp32_elements(weight.cols, weight.rows));
  for (int out = 0; out < weight.rows; ++out) {
    const int64_t from = int64_t{out} * weight.cols;
    for (int in = 0; in < weight.cols; ++in) {
      panels[fp32_index(weight.cols, out, in)] = bit_cast<uint32_t>(weight.number(from + in));
    }
  }
  return panels;
}

// A block computes kRows rows by 32 columns.
template <int kRows>
struct MatmulFp32 {
  using Args = MatmulArgs;
  static constexpr int kThreads = kMatmulWarps * kWarp;
  static constexpr int kResident = kRows > 1 ? 4 : 6;

  static constexpr Launch launch(const Args& args) {
    const int64_t panels = (args.out + kPanelCols - 1) / kPanelCols;
    return {.blocks = panels * ((args.rows + kRows - 1) / kRows),
            .shared_bytes = int64_t{kMatmulWarps} * kRows * kPanelCols * 4};
  }

  // The blocks of the first rows bring the weights of all.
  template <typename Block>
  RUNNEL_DEVICE static void ahead(Block& block, const Args& args) {
    const int64_t panels = (args.out + kPanelCols - 1) / kPanelCols;
    if (block.index() >= panels) return;
    if (fp32_elements(args.in, args.out) * 4 > kMostPrefetched) return;
    block.prefetch(static_cast<const float*>(args.panels) + block.index() * args.in * kPanelCols,
                   static_cast<uint32_t>(args.in * kPanelCols * 4));
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int panels = (args.out + kPanelCols - 1) / kPanelCols;
    const int panel = static_cast<int>(block.index() % panels);
    const int row = static_cast<int>(block.index() / panels) * kRows;
    const float* weights =
        static_cast<const float*>(args.panels) + int64_t{panel} * args.in * kPanelCols;
    float* sums = block.template shared<float>();
    block.phase([&](int t) {
      const int warp = t / kWarp;
      const int lane = t % kWarp;
      float sum[kRows] = {};
      for (int k = warp * kChunkFp32; k < args.in; k += kMatmulWarps * kChunkFp32) {
        const int end = args.in < k + kChunkFp32 ? args.in : k + kChunkFp32;
        for (int i = k; i < end; ++i) {
          const float weight = weights[int64_t{i} * kPanelCols + lane];
          for (int r = 0; r < kRows; ++r) {
            const float x = row + r < args.rows ? args.x[(row + r) * args.x_stride + i] : 0.0F;
            sum[r] = std::fma(x, weight, sum[r]);
          }
        }
      }
      for (int r = 0; r < kRows; ++r) sums[(warp * kRows + r) * kPanelCols + lane] = sum[r];
    });
    join_sums(block, args, row, panel * kPanelCols, kRows, kPanelCols);
  }
};

// ---- bf16 on tensor cores -----------------------------------------------------------------------

inline constexpr int kChunkBf16 = 2 * kTileK;  // inputs of a chunk: 16 bytes of weights to a lane

inline constexpr int kSplitTogether =
    4;  // chunks of a split weight: a part of them, then the other

// A weight is a list of tiles of 8 outputs. A tile is [chunk of 32 inputs][lane][4 pairs], the
// fragments B of two steps of 16 inputs, and then the outputs' biases. The unit is a word of 4
// bytes.
inline constexpr int kChunkWords = kWarp * 4;
RUNNEL_DEVICE constexpr int tile_words(int chunks, bool split) {
  return chunks * (split ? 2 : 1) * kChunkWords + kTileN;
}
RUNNEL_DEVICE constexpr int64_t bf16_words(int in_size, int out_size, bool split) {
  return int64_t{(out_size + kTileN - 1) / kTileN} *
         tile_words((in_size + kChunkBf16 - 1) / kChunkBf16, split);
}
// The index of a chunk in a split tile, which has `chunks` chunks of each part. Part 0 is the
// rounded numbers, and part 1 the remainders.
RUNNEL_DEVICE constexpr int split_chunk(int chunks, int chunk, int part) {
  const int first = chunk / kSplitTogether * kSplitTogether;
  const int together = chunks - first < kSplitTogether ? chunks - first : kSplitTogether;
  return 2 * first + part * together + chunk - first;
}
// The index in its chunk of the pair of elements (out, in) and (out, in + 1), where `in` is even.
RUNNEL_DEVICE constexpr int word_in_chunk(int out, int in) {
  const int k = in % kTileK;
  const int lane = out % kTileN * 4 + k % 8 / 2;
  return lane * 4 + in % kChunkBf16 / kTileK * 2 + k / 8;
}

// Rounds fp32 to bf16, to nearest even. The result is in the low 16 bits.
RUNNEL_DEVICE constexpr uint32_t bf16_bits(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  if (x != x) return 0x7fff;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// A weight as fragments of bf16, zero padded. `split`: in two parts. Without bias.data the biases
// are zeros.
inline std::vector<uint32_t> bf16_panels(HostTensor weight, HostTensor bias, bool split) {
  const int chunks = (weight.cols + kChunkBf16 - 1) / kChunkBf16;
  const int words = tile_words(chunks, split);
  std::vector<uint32_t> panels(bf16_words(weight.cols, weight.rows, split));
  for (int out = 0; out < weight.rows; ++out) {
    uint32_t* tile = panels.data() + int64_t{out / kTileN} * words;
    for (int in = 0; in < weight.cols; ++in) {
      const float number = weight.number(int64_t{out} * weight.cols + in);
      const uint32_t rounded = bf16_bits(number);
      const int chunk = in / kChunkBf16;
      const auto put = [&](int at, uint32_t bits) {
        tile[at * kChunkWords + word_in_chunk(out, in)] |= bits << in % 2 * 16;
      };
      put(split ? split_chunk(chunks, chunk, 0) : chunk, rounded);
      if (!split) continue;
      put(split_chunk(chunks, chunk, 1), bf16_bits(number - bit_cast<float>(rounded << 16)));
    }
    if (bias.data != nullptr) {
      tile[words - kTileN + out % kTileN] = bit_cast<uint32_t>(bias.number(out));
    }
  }
  return panels;
}

// Types that are loaded and stored at once: two adjacent elements of a matrix, and a lane's pairs
// of a chunk of a weight.
struct alignas(8) Two {
  float at[2];
};
struct alignas(16) Pairs {
  uint32_t at[4];
};

// A pair of numbers rounded to bf16, and the remainders of the rounding, also a pair of bf16.
struct SplitPair {
  uint32_t rounded, rest;
};
template <typename Block>
RUNNEL_DEVICE SplitPair split(Block& block, Two two) {
  const uint32_t rounded = block.pack(two.at[0], two.at[1]);
  return {rounded, block.pack(two.at[0] - bit_cast<float>(rounded << 16),
                              two.at[1] - bit_cast<float>(rounded & 0xffff0000))};
}

// A block computes kM x kN tiles of 16 x 8. With WeightForm::kSplit, x and the weight are sums of
// two bf16 numbers. In each step, the products of x's remainders follow those of x's rounded
// numbers. In each chunk, the products of the weight's remainders follow both steps. With kTwo,
// half of the tiles are of the first weight, and the others are the same tiles of the second one.
template <int kM, int kN, WeightForm kForm = WeightForm::kOne>
struct MatmulBf16 {
  static constexpr bool kSplit = kForm == WeightForm::kSplit;
  static constexpr bool kTwo = kForm == WeightForm::kTwo;
  using Args = std::conditional_t<kTwo, GluArgs, MatmulArgs>;
  static constexpr int kThreads = kMatmulWarps * kWarp;
  static constexpr int kResident = kM * kN >= 16 ? 3 : 4;
  // The number of rounds whose weights and inputs are loaded at once: as many as fit in registers.
  static constexpr int kAhead = kM * kN >= 16 || kSplit ? 1 : kM * kN >= 4 ? 2 : 4;
  static constexpr int kRows = kM * kTileM;
  static constexpr int kOutTiles = kTwo ? kN / 2 : kN;  // of 8 outputs
  static constexpr int kOuts = kOutTiles * kTileN;
  static constexpr int kCols =
      kN * kTileN;  // sums in a row: of two weights twice as many as outputs

  static constexpr Launch launch(const Args& args) {
    const int64_t columns = (first_of(args).out + kOuts - 1) / kOuts;
    return {.blocks = columns * ((first_of(args).rows + kRows - 1) / kRows),
            .shared_bytes = int64_t{kMatmulWarps} * kRows * kCols * 4};
  }

  // The blocks of the first rows bring the weights of all.
  template <typename Block>
  RUNNEL_DEVICE static void ahead(Block& block, const Args& args) {
    const MatmulArgs& of = first_of(args);
    const int64_t tiles = (of.out + kTileN - 1) / kTileN;
    const int64_t first = block.index() * kOutTiles;
    if (first >= tiles) return;
    const int words = tile_words((of.in + kChunkBf16 - 1) / kChunkBf16, kSplit);
    if (tiles * words * 4 > kMostPrefetched) return;
    const int64_t count = tiles - first < kOutTiles ? tiles - first : kOutTiles;
    const auto bring = [&](const void* panels) {
      block.prefetch(static_cast<const uint32_t*>(panels) + first * words,
                     static_cast<uint32_t>(count * words * 4));
    };
    bring(of.panels);
    if constexpr (kTwo) bring(args.up_panels);
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const MatmulArgs& of = first_of(args);
    const int columns = (of.out + kOuts - 1) / kOuts;
    const int tile = static_cast<int>(block.index() % columns) * kOutTiles;
    const int row = static_cast<int>(block.index() / columns) * kRows;
    typename Block::template Each<Sums> c;
    if (has_whole_chunks(of)) {
      add_up<true>(block, args, tile, row, c);
    } else {
      add_up<false>(block, args, tile, row, c);
    }
    float* sums = block.template shared<float>();
    block.phase([&](int t) {
      float* mine = sums + t / kWarp * kRows * kCols;
      for (int m = 0; m < kM; ++m) {
        for (int n = 0; n < kN; ++n) {
          for (int i = 0; i < 4; ++i) {
            const Element at = element_c(t % kWarp, i);
            mine[(m * kTileM + at.row) * kCols + n * kTileN + at.col] = c[t].at[m][n].at[i];
          }
        }
      }
    });
    if constexpr (kTwo) {
      join_both(block, args, row, tile * kTileN);
    } else {
      join_sums(block, args, row, tile * kTileN, kRows, kCols);
    }
  }

 private:
  static constexpr int kParts = kSplit ? 2 : 1;
  template <typename Fragment, int kRowTiles, int kColTiles>
  struct Tiles {
    Fragment at[kRowTiles][kColTiles];
  };
  using Sums = Tiles<FragmentC, kM, kN>;
  using Weights = Tiles<FragmentB, 2, kN>;
  struct Inputs {
    Tiles<FragmentA, 2, kM> part[kParts];
  };
  // A chunk of inputs before rounding.
  struct Given {
    Two at[2][kM][4] = {};
  };
  template <int kCount>
  struct Loads {
    Weights b[kCount];
    Given x[kCount];
  };

  // The arguments of the product with the first weight.
  RUNNEL_DEVICE static constexpr const MatmulArgs& first_of(const Args& args) {
    if constexpr (kTwo) {
      return args.gate;
    } else {
      return args;
    }
  }

  // As join_sums(), where a row has the sums of the first weight, and then those of the second one.
  template <typename Block>
  RUNNEL_DEVICE static void join_both(Block& block, const Args& args, int row, int col) {
    const MatmulArgs& of = args.gate;
    const float* sums = block.template shared<float>();
    block.each([&](int t) {
      for (int i = t; i < kRows * kOuts; i += kThreads) {
        const int m = row + i / kOuts;
        const int n = col + i % kOuts;
        if (m >= of.rows || n >= of.out) continue;
        const float* gate = sums + i / kOuts * kCols + i % kOuts;
        const float factor =
            activate(of.end.activation, join_warps(gate, kRows * kCols) + of.bias[n]);
        const float up = join_warps(gate + kOuts, kRows * kCols) + args.up_bias[n];
        of.y[m * of.y_stride + n] = up * factor;
      }
    });
  }

  // Whether two adjacent inputs can be loaded at once, and all chunks are whole.
  RUNNEL_DEVICE static bool has_whole_chunks(const MatmulArgs& args) {
    return args.x_stride % 2 == 0 && args.in % kChunkBf16 == 0 &&
           reinterpret_cast<uintptr_t>(args.x) % alignof(Two) == 0;
  }

  // Adds the products of all chunks. Each warp adds its own chunks.
  template <bool kWhole, typename Block, typename EachC>
  RUNNEL_DEVICE static void add_up(Block& block, const Args& args, int tile, int row, EachC& c) {
    constexpr int kAtOnce = kWhole ? kAhead : 1;
    const int chunks = (first_of(args).in + kChunkBf16 - 1) / kChunkBf16;
    // Every warp computes the same number of rounds. A chunk after the last one is zeros.
    const int rounds = (chunks + kMatmulWarps - 1) / kMatmulWarps;
    for (int first = 0; first < rounds; first += kAtOnce) {
      typename Block::template Each<Loads<kAtOnce>> loads;
      block.each([&](int t) {
        RUNNEL_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int chunk = (first + i) * kMatmulWarps + t / kWarp;
          if (chunk >= chunks) return;
          load_weights(args, tile, chunk, chunks, 0, t % kWarp, loads[t].b[i]);
          load_inputs<kWhole>(first_of(args), row, chunk, t % kWarp, loads[t].x[i]);
        }
      });
      RUNNEL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= rounds) break;
        typename Block::template Each<Inputs> a;
        block.each([&](int t) { round_inputs(block, loads[t].x[i], a[t]); });
        const auto b = [&](int t) -> const Weights& { return loads[t].b[i]; };
        for (int half = 0; half < 2; ++half) {
          for (int part = 0; part < kParts; ++part) add(block, c, a, b, half, part);
        }
        if constexpr (kSplit) {
          block.each([&](int t) {
            const int chunk = (first + i) * kMatmulWarps + t / kWarp;
            if (chunk >= chunks) return;
            load_weights(args, tile, chunk, chunks, 1, t % kWarp, loads[t].b[i]);
          });
          for (int half = 0; half < 2; ++half) add(block, c, a, b, half, 0);
        }
      }
    }
  }

  template <typename Block, typename EachC, typename EachA, typename EachB>
  RUNNEL_DEVICE static void add(Block& block, EachC& c, EachA& a, const EachB& b, int half,
                                int part) {
    for (int m = 0; m < kM; ++m) {
      for (int n = 0; n < kN; ++n) {
        block.mma([&](int t) -> FragmentC& { return c[t].at[m][n]; },
                  [&](int t) -> const FragmentA& { return a[t].part[part].at[half][m]; },
                  [&](int t) -> const FragmentB& { return b(t).at[half][n]; });
      }
    }
  }

  // Loads a chunk of each tile. With a split weight, a chunk of one part.
  RUNNEL_DEVICE static void load_weights(const Args& args, int tile, int chunk, int chunks,
                                         int part, int lane, Weights& b) {
    const int tiles = (first_of(args).out + kTileN - 1) / kTileN;
    const int at = kSplit ? split_chunk(chunks, chunk, part) : chunk;
    for (int n = 0; n < kN; ++n) {
      const int its_tile = tile + n % kOutTiles;
      if (its_tile >= tiles) continue;  // stays as it was: zero
      const void* panels = first_of(args).panels;
      if constexpr (kTwo) panels = n < kOutTiles ? panels : args.up_panels;
      const uint32_t* from = static_cast<const uint32_t*>(panels) +
                             int64_t{its_tile} * tile_words(chunks, kSplit) + at * kChunkWords;
      const Pairs pairs = reinterpret_cast<const Pairs*>(from)[lane];
      for (int i = 0; i < 4; ++i) b.at[i / 2][n].pair[i % 2] = pairs.at[i];
    }
  }

  template <bool kWhole>
  RUNNEL_DEVICE static void load_inputs(const MatmulArgs& args, int row, int chunk, int lane,
                                        Given& to) {
    for (int half = 0; half < 2; ++half) {
      for (int m = 0; m < kM; ++m) {
        for (int i = 0; i < 4; ++i) {
          const Element at = element_a(lane, i);
          const int r = row + m * kTileM + at.row;
          const int k = chunk * kChunkBf16 + half * kTileK + at.col;
          if (r >= args.rows || (!kWhole && k >= args.in)) continue;  // stays zero
          const float* x = args.x + r * args.x_stride + k;
          Two& two = to.at[half][m][i];
          two = kWhole ? *reinterpret_cast<const Two*>(x)
                       : Two{{x[0], k + 1 < args.in ? x[1] : 0.0F}};
        }
      }
    }
  }
  // All loads start before the first number is rounded, so that the warp waits only once.
  template <typename Block>
  RUNNEL_DEVICE static void round_inputs(Block& block, const Given& given, Inputs& a) {
    for (int half = 0; half < 2; ++half) {
      for (int m = 0; m < kM; ++m) {
        for (int i = 0; i < 4; ++i) {
          const SplitPair pair = split(block, given.at[half][m][i]);
          a.part[0].at[half][m].pair[i] = pair.rounded;
          if constexpr (kSplit) a.part[1].at[half][m].pair[i] = pair.rest;
        }
      }
    }
  }
};

}  // namespace runnel::cuda
