// LayerNorm of a tile's rows. A warp computes one row, with the order of sums of norm.h. Every
// block of a cluster computes all rows itself, because that costs less than sending them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/tile.h"
#include "kernels/device.h"

namespace runnel::cuda {

template <typename Block, typename Sizes>
class TileNorm {
 public:
  RUNNEL_DEVICE TileNorm(Block& block, Tile<Sizes>& tile, int rows, float eps)
      : block_(block), tile_(tile), rows_(rows), eps_(eps) {}

  // Starts loading thread t's part of scale and shift.
  RUNNEL_DEVICE RUNNEL_INLINE void fetch(const float* scale, const float* shift, int t) {
    for (int i = 0; i < kEach; ++i) {
      affine_[t].scale[i] = scale[t % kWarp + i * kWarp];
      affine_[t].shift[i] = shift[t % kWarp + i * kWarp];
    }
  }

  // x = LayerNorm(x + projected), or LayerNorm(x), with the fetched scale and shift. x_pairs is the
  // same in bf16. All threads see both.
  RUNNEL_DEVICE RUNNEL_INLINE void run(bool with_projected) {
    for (int first = 0; first < rows_; first += kTileWarps) run_rows(first, with_projected);
    block_.phase([](int) {});
  }

 private:
  static constexpr int kEach = Sizes::kWidth / kWarp;  // elements of a row in a lane
  static_assert(Sizes::kWidth % kWarp == 0);
  static constexpr int kParts = 4;  // partial sums of a row, as many as NormKernel has warps
  struct Affine {
    float scale[kEach] = {};
    float shift[kEach] = {};
  };
  struct Held {
    float at[kEach] = {};  // columns lane, lane + 32, ...
  };
  struct Parts {
    float at[kParts] = {};
  };

  // The sum over a row's columns. part(t, i, sum) adds a lane's element i to `sum`.
  template <typename Part>
  RUNNEL_DEVICE RUNNEL_INLINE void sum(typename Block::template Each<float>& total,
                                       const Part& part) {
    typename Block::template Each<Parts> parts;
    block_.each([&](int t) {
      for (int i = 0; i < kEach; ++i) part(t, i, parts[t].at[i % kParts]);
    });
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      for (int i = 0; i < kParts; ++i) {
        block_.fold([&](int t) -> float& { return parts[t].at[i]; }, mask);
      }
    }
    block_.each([&](int t) {
      const float* at = parts[t].at;
      total[t] = at[0] + at[1] + at[2] + at[3];
    });
  }

  // Computes one row in each warp.
  RUNNEL_DEVICE RUNNEL_INLINE void run_rows(int first, bool with_projected) {
    constexpr auto kColumns = static_cast<float>(Sizes::kWidth);
    const auto row = [&](int t) { return first + t / kWarp; };
    const auto x = [&](int t) { return tile_.x + row(t) * Sizes::kWidth; };
    typename Block::template Each<Held> held;
    typename Block::template Each<float> mean;
    typename Block::template Each<float> deviation;
    block_.each([&](int t) {
      if (row(t) >= rows_) return;
      for (int i = 0; i < kEach; ++i) {
        const int column = t % kWarp + i * kWarp;
        held[t].at[i] = x(t)[column];
        if (with_projected) held[t].at[i] += tile_.projected[projected_index(row(t), column)];
      }
    });
    sum(mean, [&](int t, int i, float& sum) { sum += held[t].at[i]; });
    block_.each([&](int t) { mean[t] = mean[t] / kColumns; });
    sum(deviation, [&](int t, int i, float& sum) {
      const float deviation = held[t].at[i] - mean[t];
      sum = std::fma(deviation, deviation, sum);
    });
    block_.each([&](int t) {
      if (row(t) >= rows_) return;
      const float inverse = 1.0F / std::sqrt(deviation[t] / kColumns + eps_);
      for (int i = 0; i < kEach; ++i) {
        x(t)[t % kWarp + i * kWarp] =
            normalized(held[t].at[i], mean[t], inverse, affine_[t].scale[i], affine_[t].shift[i]);
      }
    });
    block_.each([&](int t) {
      if (row(t) >= rows_) return;
      for (int k = t % kWarp * 2; k < Sizes::kWidth; k += 2 * kWarp) {
        const Two two = *reinterpret_cast<const Two*>(x(t) + k);
        tile_.x_pairs[tile_pair_index(row(t), k)] = block_.pack(two.at[0], two.at[1]);
      }
    });
  }

  Block& block_;
  Tile<Sizes>& tile_;
  const int rows_;
  const float eps_;
  typename Block::template Each<Affine> affine_;
};

}  // namespace runnel::cuda
