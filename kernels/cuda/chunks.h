// Linear attention over chunks of 64 inputs at once, on tensor cores. A block computes one head of
// one row. With Q = phi(q) and K = phi(k) of a chunk, and S and z from its beginning,
// - y = (tril(Q K^T) V + Q S) / (tril(Q K^T) 1 + Q z + eps),
// - S += K^T V, z += K^T 1.
//
// A factor x is split into two bf16 numbers, high = bf16(x) and low = bf16(x - high). A product of
// two factors is high high + high low + low high, which is accurate to 2^-16. tf32 would also take
// three products, each of them slower. All sums are fp32. The sums with S are computed outside of
// the tensor cores, whose additions do not round to nearest.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recur.h"
#include "kernels/device.h"

namespace runnel::cuda {

// The two parts of a fragment's elements.
struct SplitA {
  FragmentA high, low;
};
struct SplitB {
  FragmentB high, low;
};

template <typename Block>
RUNNEL_DEVICE void split(Block& block, float x, float y, uint32_t& high, uint32_t& low) {
  high = block.pack(x, y);
  low = block.pack(x - bit_cast<float>(high << 16), y - bit_cast<float>(high & 0xffff0000U));
}

struct alignas(8) NeighbourPair {
  float at[2];
};

// Makes a fragment from the pairs that pair(i) returns.
template <typename Split, typename Block, typename Pairs>
RUNNEL_DEVICE Split split_pairs(Block& block, const Pairs& pair) {
  Split parts;
  constexpr int kPairs = std::extent_v<decltype(parts.high.pair)>;
  for (int i = 0; i < kPairs; ++i) {
    const NeighbourPair x = pair(i);
    split(block, x.at[0], x.at[1], parts.high.pair[i], parts.low.pair[i]);
  }
  return parts;
}
// Two adjacent elements of a row, the first at an even index; two adjacent elements of a column.
RUNNEL_DEVICE constexpr NeighbourPair across(const float* x) {
  return *reinterpret_cast<const NeighbourPair*>(x);
}
RUNNEL_DEVICE constexpr NeighbourPair down(const float* x, int stride) {
  return {{x[0], x[stride]}};
}

// Element (row, k) of A is at from[row * stride + k]. `stride` and `from` are even.
template <typename Block>
RUNNEL_DEVICE SplitA split_a(Block& block, const float* from, int stride, int lane) {
  return split_pairs<SplitA>(block, [&](int i) {
    const Element at = element_a(lane, i);
    return across(from + at.row * stride + at.col);
  });
}
// Element (row, k) of A is at from[k * stride + row].
template <typename Block>
RUNNEL_DEVICE SplitA split_a_turned(Block& block, const float* from, int stride, int lane) {
  return split_pairs<SplitA>(block, [&](int i) {
    const Element at = element_a(lane, i);
    return down(from + at.col * stride + at.row, stride);
  });
}
// Element (k, column) of B is at from[k * stride + column].
template <typename Block>
RUNNEL_DEVICE SplitB split_b(Block& block, const float* from, int stride, int lane) {
  return split_pairs<SplitB>(block, [&](int i) {
    const Element at = element_b(lane, i);
    return down(from + at.row * stride + at.col, stride);
  });
}
// Element (k, column) of B is at from[column * stride + k]. `stride` and `from` are even.
template <typename Block>
RUNNEL_DEVICE SplitB split_b_turned(Block& block, const float* from, int stride, int lane) {
  return split_pairs<SplitB>(block, [&](int i) {
    const Element at = element_b(lane, i);
    return across(from + at.col * stride + at.row);
  });
}

// c += a b for every warp. a(t), b(t) and c(t) belong to thread t.
template <typename Block, typename C, typename A, typename B>
RUNNEL_DEVICE void multiply(Block& block, const C& c, const A& a, const B& b) {
  const auto a_high = [&](int t) -> const FragmentA& { return a(t).high; };
  const auto b_high = [&](int t) -> const FragmentB& { return b(t).high; };
  block.mma(c, [&](int t) -> const FragmentA& { return a(t).low; }, b_high);
  block.mma(c, a_high, [&](int t) -> const FragmentB& { return b(t).low; });
  block.mma(c, a_high, b_high);
}

struct ChunkKernel {
  using Args = RecurArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 3;

  static constexpr Launch launch(int64_t rows, const Args& args) {
    return {.blocks = rows * args.heads, .shared_bytes = shared_floats(args.dk) * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int head = static_cast<int>(block.index() % args.heads);
    const RowPart part = part_of(args.rows, args.control,
                                 static_cast<int>(block.index() / args.heads), Part::kChunks);
    if (part.begin >= part.end) return;
    block.require(part.begin >= 0 && part.end <= args.inputs,
                  "recur: a row's inputs are among those given");
    float* state = head_state(args, part.slot, head * state_floats(args.form, args.dk, args.dv));
    for (int input = part.begin; input < part.end; input += kChunk) {
      chunk(block, args, head, input, state);
    }
  }

 private:
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kColumns = 32;                 // columns of v and S in one pass
  static constexpr int kColumnStride = kColumns + 4;  // padded to avoid bank conflicts
  static constexpr int kTiles = kColumns / kTileN;
  static_assert(kChunk == kWarps * kTileM && kTiles == kWarps);

  // Queries, keys, values and S of a chunk, with zeros up to whole tiles.
  struct Shared {
    float* q;    // [kChunk][stride]
    float* k;    // [kChunk][stride]
    float* v;    // [kChunk][kColumnStride]
    float* s;    // [padded][kColumnStride]
    float* z;    // [padded]
    float* sum;  // [kChunk][4], parts of the divisors
    int padded;  // dk, up to whole tiles
    int stride;  // even, and padded to avoid bank conflicts
  };
  RUNNEL_DEVICE static constexpr int padded(int dk) { return (dk + kTileK - 1) / kTileK * kTileK; }
  RUNNEL_DEVICE static constexpr int64_t shared_floats(int dk) {
    const int64_t size = padded(dk);
    return 2 * kChunk * (size + 8) + (kChunk + size) * kColumnStride + size + 4 * kChunk;
  }
  template <typename Block>
  RUNNEL_DEVICE static Shared shared(Block& block, int dk) {
    Shared here{};
    here.padded = padded(dk);
    here.stride = here.padded + 8;
    here.q = block.template shared<float>();
    here.k = here.q + kChunk * here.stride;
    here.v = here.k + kChunk * here.stride;
    here.s = here.v + kChunk * kColumnStride;
    here.z = here.s + here.padded * kColumnStride;
    here.sum = here.z + here.padded;
    return here;
  }

  // Warp w has rows 16 w .. 16 w + 15 of a matrix over the chunk's inputs.
  struct Scores {
    FragmentC at[kChunk / kTileN];
  };
  struct SplitScores {
    SplitA at[kChunk / kTileK];
  };
  struct Columns {
    FragmentC at[kTiles];
  };

  template <typename Block>
  RUNNEL_DEVICE static void chunk(Block& block, const Args& args, int head, int input,
                                  float* state) {
    const Shared here = shared(block, args.dk);
    float* z = state + int64_t{args.dk} * args.dv;
    gather(block, args, head, input, z, here);
    typename Block::template Each<SplitScores> scores;
    find_scores(block, args, here, scores, z);
    for (int column = 0; column < args.dv; column += kColumns) {
      gather_columns(block, args, head, input, column, state, here);
      advance_state(block, args, column, here, state);
      find_outputs(block, args, head, input, column, here, scores);
    }
  }

  // Loads phi(q), phi(k) and z.
  template <typename Block>
  RUNNEL_DEVICE static void gather(Block& block, const Args& args, int head, int input,
                                   const float* z, const Shared& here) {
    const float* q = args.q + input * args.q_stride + int64_t{head} * args.dk;
    const float* k = args.k + input * args.k_stride + int64_t{head} * args.dk;
    block.phase([&](int t) {
      for (int i = t; i < kChunk * here.padded; i += kThreads) {
        const int row = i / here.padded;
        const int column = i % here.padded;
        const bool inside = column < args.dk;
        here.q[row * here.stride + column] =
            inside ? phi(args.map, q[row * args.q_stride + column]) : 0.0F;
        here.k[row * here.stride + column] =
            inside ? phi(args.map, k[row * args.k_stride + column]) : 0.0F;
      }
      for (int i = t; i < here.padded; i += kThreads) here.z[i] = i < args.dk ? z[i] : 0.0F;
    });
  }

  // Computes tril(Q K^T) as split factors, and parts of its row sums and of Q z. Advances z to the
  // end of the chunk.
  template <typename Block>
  RUNNEL_DEVICE static void find_scores(Block& block, const Args& args, const Shared& here,
                                        typename Block::template Each<SplitScores>& scores,
                                        float* z) {
    typename Block::template Each<Scores> c;
    for (int k = 0; k < here.padded; k += kTileK) {
      typename Block::template Each<SplitA> a;
      block.each([&](int t) {
        a[t] =
            split_a(block, here.q + t / kWarp * kTileM * here.stride + k, here.stride, t % kWarp);
      });
      for (int n = 0; n < kChunk / kTileN; ++n) {
        typename Block::template Each<SplitB> b;
        block.each([&](int t) {
          b[t] =
              split_b_turned(block, here.k + n * kTileN * here.stride + k, here.stride, t % kWarp);
        });
        multiply(
            block, [&](int t) -> FragmentC& { return c[t].at[n]; },
            [&](int t) -> const SplitA& { return a[t]; },
            [&](int t) -> const SplitB& { return b[t]; });
      }
    }
    block.phase([&](int t) {
      scores[t] = below_diagonal(block, here, t, c[t]);
      for (int i = t; i < args.dk; i += kThreads) {
        float sum = 0.0F;
        for (int row = 0; row < kChunk; ++row) sum += here.k[row * here.stride + i];
        z[i] = here.z[i] + sum;
      }
    });
  }

  // A lane has two rows; four lanes share each row.
  template <typename Block>
  RUNNEL_DEVICE static SplitScores below_diagonal(Block& block, const Shared& here, int t,
                                                  Scores& c) {
    const int lane = t % kWarp;
    const int first = t / kWarp * kTileM;
    float sum[2] = {0.0F, 0.0F};
    for (int n = 0; n < kChunk / kTileN; ++n) {
      for (int i = 0; i < 4; ++i) {
        const Element at = element_c(lane, i);
        if (n * kTileN + at.col > first + at.row) c.at[n].at[i] = 0.0F;
        sum[i / 2] += c.at[n].at[i];
      }
    }
    for (int half = 0; half < 2; ++half) {
      const int row = first + element_c(lane, 2 * half).row;
      for (int i = lane % 4; i < here.padded; i += 4) {
        sum[half] = std::fma(here.q[row * here.stride + i], here.z[i], sum[half]);
      }
      here.sum[row * 4 + lane % 4] = sum[half];
    }
    // Two adjacent tiles of sums are one tile of factors, because the lanes have the same elements
    // of both.
    SplitScores scores{};
    for (int n = 0; n < kChunk / kTileN; ++n) {
      SplitA& a = scores.at[n / 2];
      for (int i = 0; i < 2; ++i) {
        const int pair = n % 2 * 2 + i;
        split(block, c.at[n].at[2 * i], c.at[n].at[2 * i + 1], a.high.pair[pair], a.low.pair[pair]);
      }
    }
    return scores;
  }

  // Loads columns [column, column + kColumns) of v and S.
  template <typename Block>
  RUNNEL_DEVICE static void gather_columns(Block& block, const Args& args, int head, int input,
                                           int column, const float* state, const Shared& here) {
    const float* v = args.v + input * args.v_stride + int64_t{head} * args.dv + column;
    const float* s = state + column;
    block.phase([&](int t) {
      for (int i = t; i < (kChunk + here.padded) * kColumns; i += kThreads) {
        const int row = i / kColumns;
        const int at = i % kColumns;
        const bool inside = column + at < args.dv;
        if (row < kChunk) {
          here.v[row * kColumnStride + at] = inside ? v[row * args.v_stride + at] : 0.0F;
        } else {
          const int of = row - kChunk;
          here.s[of * kColumnStride + at] =
              inside && of < args.dk ? s[int64_t{of} * args.dv + at] : 0.0F;
        }
      }
    });
  }

  // S += K^T V in these columns. Each warp computes one tile of them.
  template <typename Block>
  RUNNEL_DEVICE static void advance_state(Block& block, const Args& args, int column,
                                          const Shared& here, float* state) {
    for (int m = 0; m < here.padded; m += kTileM) {
      typename Block::template Each<FragmentC> c;
      for (int k = 0; k < kChunk; k += kTileK) {
        typename Block::template Each<SplitA> a;
        typename Block::template Each<SplitB> b;
        block.each([&](int t) {
          a[t] = split_a_turned(block, here.k + k * here.stride + m, here.stride, t % kWarp);
          b[t] = split_b(block, here.v + k * kColumnStride + t / kWarp * kTileN, kColumnStride,
                         t % kWarp);
        });
        multiply(
            block, [&](int t) -> FragmentC& { return c[t]; },
            [&](int t) -> const SplitA& { return a[t]; },
            [&](int t) -> const SplitB& { return b[t]; });
      }
      block.each([&](int t) {
        for (int i = 0; i < 4; ++i) {
          const Element at = element_c(t % kWarp, i);
          const int row = m + at.row;
          const int col = t / kWarp * kTileN + at.col;
          if (row >= args.dk || column + col >= args.dv) continue;
          state[int64_t{row} * args.dv + column + col] =
              here.s[row * kColumnStride + col] + c[t].at[i];
        }
      });
    }
  }

  // Computes y in these columns.
  template <typename Block>
  RUNNEL_DEVICE static void find_outputs(Block& block, const Args& args, int head, int input,
                                         int column, const Shared& here,
                                         typename Block::template Each<SplitScores>& scores) {
    typename Block::template Each<Columns> y;
    const auto add = [&](const float* from, const auto& a) {
      for (int n = 0; n < kTiles; ++n) {
        typename Block::template Each<SplitB> b;
        block.each(
            [&](int t) { b[t] = split_b(block, from + n * kTileN, kColumnStride, t % kWarp); });
        multiply(
            block, [&](int t) -> FragmentC& { return y[t].at[n]; }, a,
            [&](int t) -> const SplitB& { return b[t]; });
      }
    };
    for (int k = 0; k < kChunk / kTileK; ++k) {
      add(here.v + k * kTileK * kColumnStride,
          [&](int t) -> const SplitA& { return scores[t].at[k]; });
    }
    for (int k = 0; k < here.padded; k += kTileK) {
      typename Block::template Each<SplitA> a;
      block.each([&](int t) {
        a[t] =
            split_a(block, here.q + t / kWarp * kTileM * here.stride + k, here.stride, t % kWarp);
      });
      add(here.s + k * kColumnStride, [&](int t) -> const SplitA& { return a[t]; });
    }
    float* out = args.out + input * args.out_stride + int64_t{head} * args.dv;
    block.phase([&](int t) {
      for (int n = 0; n < kTiles; ++n) {
        for (int i = 0; i < 4; ++i) {
          const Element at = element_c(t % kWarp, i);
          const int row = t / kWarp * kTileM + at.row;
          const int col = column + n * kTileN + at.col;
          if (col >= args.dv) continue;
          const float* sum = here.sum + row * 4;
          const float divisor = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + args.eps;
          out[row * args.out_stride + col] = y[t].at[n].at[i] / divisor;
        }
      }
    });
  }
};

}  // namespace runnel::cuda
