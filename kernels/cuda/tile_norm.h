// LayerNorm of a tile's rows, a warp to a row, with the sums of norm.h. Every block of a cluster
// does it for all rows by itself: that costs less than to tell the others.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/tile.h"
#include "kernels/device.h"

namespace runnel::cuda {

template <typename Block>
class TileNorm {
 public:
  RUNNEL_DEVICE TileNorm(Block& block, Tile& tile, int rows, int width, float eps)
      : block_(block), tile_(tile), rows_(rows), width_(width), eps_(eps) {}

  // Thread t's part of scale and shift sets out.
  RUNNEL_DEVICE void fetch(const float* scale, const float* shift, int t) {
    for (int i = 0; i < kEach; ++i) {
      const int column = t % kWarp + i * kWarp;
      affine_[t].scale[i] = column < width_ ? scale[column] : 0.0F;
      affine_[t].shift[i] = column < width_ ? shift[column] : 0.0F;
    }
  }

  // x = LayerNorm(x + projected), or of x alone, with what has been fetched; x_pairs is the same in
  // bf16. All threads see both.
  RUNNEL_DEVICE void run(bool with_projected) {
    for (int first = 0; first < rows_; first += kTileWarps) run_rows(first, with_projected);
    block_.phase([](int) {});
  }

 private:
  static constexpr int kEach = kTileWidth / kWarp;  // elements of a row that a lane has
  static constexpr int kParts = 4;                  // sums of a row: the warps of NormKernel
  struct Affine {
    float scale[kEach] = {};
    float shift[kEach] = {};
  };
  struct Parts {
    float at[kParts] = {};
  };

  // The sum over a row's columns of what part(t, column, sum) adds to `sum`.
  template <typename Part>
  RUNNEL_DEVICE void sum(typename Block::template Each<float>& total, int first, const Part& part) {
    typename Block::template Each<Parts> parts;
    block_.each([&](int t) {
      if (first + t / kWarp >= rows_) return;
      for (int i = 0; i < kEach; ++i) {
        const int column = t % kWarp + i * kWarp;
        if (column < width_) part(t, column, parts[t].at[i % kParts]);
      }
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

  // A row to each warp.
  RUNNEL_DEVICE void run_rows(int first, bool with_projected) {
    const float width = static_cast<float>(width_);
    const auto row = [&](int t) { return tile_.x + (first + t / kWarp) * width_; };
    typename Block::template Each<float> mean;
    typename Block::template Each<float> deviation;
    sum(mean, first, [&](int t, int column, float& sum) {
      float& x = row(t)[column];
      if (with_projected) x = tile_.projected[projected_index(first + t / kWarp, column)] + x;
      sum += x;
    });
    block_.each([&](int t) { mean[t] = mean[t] / width; });
    sum(deviation, first, [&](int t, int column, float& sum) {
      const float deviation = row(t)[column] - mean[t];
      sum = std::fma(deviation, deviation, sum);
    });
    block_.each([&](int t) {
      if (first + t / kWarp >= rows_) return;
      const float inverse = 1.0F / std::sqrt(deviation[t] / width + eps_);
      for (int i = 0; i < kEach; ++i) {
        const int column = t % kWarp + i * kWarp;
        if (column >= width_) continue;
        float& x = row(t)[column];
        x = normalized(x, mean[t], inverse, affine_[t].scale[i], affine_[t].shift[i]);
      }
    });
    block_.each([&](int t) {
      if (first + t / kWarp >= rows_) return;
      for (int k = t % kWarp * 2; k < width_; k += 2 * kWarp) {
        tile_.x_pairs[tile_pair_index(first + t / kWarp, k)] =
            block_.pack(row(t)[k], row(t)[k + 1]);
      }
    });
  }

  Block& block_;
  Tile& tile_;
  const int rows_;
  const int width_;
  const float eps_;
  typename Block::template Each<Affine> affine_;
};

}  // namespace runnel::cuda
