// Linear attention of a tile's rows: a warp to one head of one row, with the sums of RecurSmall in
// recur.h. States are on their way to registers from before the product that gives the queries.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/tile.h"
#include "kernels/device.h"

namespace runnel::cuda {

// A lane owns four neighbouring columns of S, and of every fourth group of rows {g, g + 16} both.
struct LaneShare {
  int group;   // the first: 0 to 3
  int column;  // the first
  // Row `i` of eight.
  RUNNEL_DEVICE int row(int i) const { return group + i / 2 * 4 + i % 2 * 16; }
};
RUNNEL_DEVICE constexpr LaneShare lane_share(int lane) { return {lane / 8, lane % 8 * 4}; }

template <typename Block>
class TileRecurrence {
 public:
  static constexpr int64_t kHeadFloats = kTileHeadSize * kTileHeadSize + kTileHeadSize;

  // The block's heads are [first_head, first_head + heads).
  RUNNEL_DEVICE TileRecurrence(Block& block, Tile& tile, int rows, int first_head, int heads,
                               float eps, States states)
      : block_(block),
        tile_(tile),
        items_(rows * heads),
        first_head_(first_head),
        heads_(heads),
        eps_(eps),
        states_(states) {}

  // Thread t's part of the first states of a layer, which are at `offset` of each slot, sets out.
  RUNNEL_DEVICE void fetch(int64_t offset, int t) { load(offset, t / kWarp, t % kWarp, held_[t]); }

  // Advances what has been fetched over one input of each live row, and gives out(row, column, y),
  // y the outputs at `column` and its three neighbours.
  template <typename Out>
  RUNNEL_DEVICE void run(int64_t offset, const Out& out) {
    for (int first = 0; first < items_; first += kTileWarps) {
      typename Block::template Each<Quad> sums;
      typename Block::template Each<float> normalizer;
      block_.each([&](int t) {
        const int item = first + t / kWarp;
        if (live(item)) features(item, t % kWarp, held_[t].z);
      });
      block_.each([&](int t) {
        const int item = first + t / kWarp;
        if (live(item)) {
          sums[t] = advance(item, t % kWarp, held_[t]);
          normalizer[t] = part_of_normalizer(item, t % kWarp);
          store(offset, item, t % kWarp, held_[t]);
        }
        load(offset, item + kTileWarps, t % kWarp, held_[t]);
      });
      for (int mask = 8; mask <= 16; mask *= 2) {
        for (int j = 0; j < Quad::kWidth; ++j) {
          block_.fold([&](int t) -> float& { return sums[t].at[j]; }, mask);
        }
      }
      for (int mask = 1; mask <= 2; mask *= 2) {
        block_.fold([&](int t) -> float& { return normalizer[t]; }, mask);
      }
      block_.each([&](int t) {
        const int item = first + t / kWarp;
        const LaneShare share = lane_share(t % kWarp);
        if (!live(item) || share.group != 0) return;  // four lanes have the same
        const float divisor = normalizer[t] + eps_;
        for (float& y : sums[t].at) y = y / divisor;
        out(row_of(item), (first_head_ + item % heads_) * kTileHeadSize + share.column, sums[t]);
      });
    }
  }

 private:
  struct Held {
    Quad row[8];
    float z = 0.0F;  // of the lane's row
  };

  RUNNEL_DEVICE int row_of(int item) const { return item / heads_; }
  RUNNEL_DEVICE bool live(int item) const {
    return item < items_ && tile_.value[row_of(item)] != kFrozen;
  }
  RUNNEL_DEVICE float* state(int64_t offset, int item) const {
    return reinterpret_cast<float*>(states_.base + states_.offset + offset +
                                    tile_.slot[row_of(item)] * states_.slot_bytes) +
           (first_head_ + item % heads_) * kHeadFloats;
  }
  // Of a warp: phi(q), phi(k), and their parts of phi(q) . z.
  RUNNEL_DEVICE float* scratch(int item) const {
    return tile_.scratch + item % kTileWarps * 3 * kTileHeadSize;
  }
  RUNNEL_DEVICE const float* given(int item) const {
    return tile_.wide + item * 3 * kTileHeadSize;  // [row][head][q, k, v]
  }

  RUNNEL_DEVICE void load(int64_t offset, int item, int lane, Held& to) const {
    to = {};  // or what was held would go on taking registers
    if (item >= items_ || tile_.slot[row_of(item)] < 0) return;
    const float* from = state(offset, item);
    const LaneShare share = lane_share(lane);
    for (int i = 0; i < 8; ++i) {
      to.row[i] =
          *reinterpret_cast<const Quad*>(from + share.row(i) * kTileHeadSize + share.column);
    }
    to.z = from[kTileHeadSize * kTileHeadSize + lane];
  }
  RUNNEL_DEVICE void store(int64_t offset, int item, int lane, const Held& held) const {
    float* to = state(offset, item);
    const LaneShare share = lane_share(lane);
    for (int i = 0; i < 8; ++i) {
      *reinterpret_cast<Quad*>(to + share.row(i) * kTileHeadSize + share.column) = held.row[i];
    }
    to[kTileHeadSize * kTileHeadSize + lane] = held.z;
  }

  RUNNEL_DEVICE void features(int item, int lane, float& z) const {
    const float* q = given(item);
    const float* k = q + kTileHeadSize;
    float* query = scratch(item);
    float* key = query + kTileHeadSize;
    float* dot = key + kTileHeadSize;
    query[lane] = phi(q[lane]);
    key[lane] = phi(k[lane]);
    z += key[lane];
    dot[lane] = query[lane] * z;
  }

  // S += phi(k) v^T on the lane's share, and its part of phi(q)^T S.
  RUNNEL_DEVICE Quad advance(int item, int lane, Held& held) const {
    const float* query = scratch(item);
    const float* key = query + kTileHeadSize;
    const LaneShare share = lane_share(lane);
    const Quad value =
        *reinterpret_cast<const Quad*>(given(item) + 2 * kTileHeadSize + share.column);
    Quad total{};
    for (int i = 0; i < 8; i += 2) {
      Quad sum{};
      for (int r = i; r < i + 2; ++r) {
        for (int j = 0; j < Quad::kWidth; ++j) {
          float& at = held.row[r].at[j];
          at = std::fma(key[share.row(r)], value.at[j], at);
          sum.at[j] = std::fma(query[share.row(r)], at, sum.at[j]);
        }
      }
      for (int j = 0; j < Quad::kWidth; ++j) total.at[j] += sum.at[j];
    }
    return total;
  }

  // One of the four sums that RecurSmall's normalizer is made of.
  RUNNEL_DEVICE float part_of_normalizer(int item, int lane) const {
    const float* dot = scratch(item) + 2 * kTileHeadSize;
    float part = 0.0F;
    for (int i = lane % 4; i < kTileHeadSize; i += 4) part += dot[i];
    return part;
  }

  Block& block_;
  Tile& tile_;
  const int items_;  // heads of rows, a row's side by side
  const int first_head_;
  const int heads_;
  const float eps_;
  const States states_;
  typename Block::template Each<Held> held_;
};

}  // namespace runnel::cuda
