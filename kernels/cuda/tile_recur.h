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

// Where the group of a row has it: row(i) of group g is at 8 g + i.
RUNNEL_DEVICE constexpr int place_in_group(int row) {
  return row % 4 * 8 + row % 16 / 4 * 2 + row / 16;
}

template <typename Block, typename Sizes>
class TileRecurrence {
 public:
  static constexpr int64_t kHeadFloats = kTileHeadSize * kTileHeadSize + kTileHeadSize;

  // The block's heads are [first_head, first_head + heads).
  RUNNEL_DEVICE TileRecurrence(Block& block, Tile<Sizes>& tile, int rows, int first_head, int heads,
                               float eps, States states)
      : block_(block),
        tile_(tile),
        items_(rows * heads),
        first_head_(first_head),
        heads_(heads),
        eps_(eps),
        states_(states) {}

  // Thread t's part of the first states of a layer, which are at `offset` of each slot, sets out.
  RUNNEL_DEVICE void fetch(int64_t offset, int t) {
    RUNNEL_UNROLL
    for (int i = 0; i < kAhead; ++i)
      load(offset, i * kTileWarps + t / kWarp, t % kWarp, held_[i][t]);
  }

  // Advances what has been fetched over one input of each live row, and gives out(row, column, y),
  // y the outputs at `column` and its three neighbours.
  template <typename Out>
  RUNNEL_DEVICE void run(int64_t offset, const Out& out) {
    for (int first = 0; first < items_; first += kAhead * kTileWarps) {
      RUNNEL_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int from = first + i * kTileWarps;
        if (from < items_) run_items(offset, from, held_[i], out);
      }
    }
  }

 private:
  static constexpr int kAhead = 2;  // states of a warp that are on their way

  struct Held {
    Quad row[8];
    float z = 0.0F;  // of the lane's row
    int item = -1;   // none: of no row that steps
  };

  // Of the batch's rows and the network's heads.
  struct Place {
    int row, head;
  };
  RUNNEL_DEVICE Place place(int item) const {
    const auto row = static_cast<int>(static_cast<unsigned>(item) / static_cast<unsigned>(heads_));
    return {row, first_head_ + item - row * heads_};
  }
  RUNNEL_DEVICE float* state(int64_t offset, Place at) const {
    return reinterpret_cast<float*>(states_.base + states_.offset + offset +
                                    tile_.slot[at.row] * states_.slot_bytes) +
           at.head * kHeadFloats;
  }

  // An item to each warp.
  template <typename Out>
  RUNNEL_DEVICE void run_items(int64_t offset, int first, typename Block::template Each<Held>& held,
                               const Out& out) {
    typename Block::template Each<Quad> sums;
    typename Block::template Each<float> normalizer;
    typename Block::template Each<int> item;
    block_.each([&](int t) {
      item[t] = held[t].item;
      if (item[t] >= 0) features(t, held[t]);
    });
    block_.each([&](int t) {
      if (item[t] >= 0) {
        sums[t] = advance(t, held[t]);
        normalizer[t] = part_of_normalizer(t);
        store(offset, t % kWarp, held[t]);
      }
      load(offset, first + kAhead * kTileWarps + t / kWarp, t % kWarp, held[t]);
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
      const LaneShare share = lane_share(t % kWarp);
      if (item[t] < 0 || share.group != 0) return;  // four lanes have the same
      const Place at = place(item[t]);
      const float divisor = normalizer[t] + eps_;
      for (float& y : sums[t].at) y = y / divisor;
      out(at.row, at.head * kTileHeadSize + share.column, sums[t]);
    });
  }

  // Of a warp: phi(q) and phi(k), by place_in_group(), and their parts of phi(q) . z, [row % 4][8].
  RUNNEL_DEVICE float* scratch(int t) const {
    return tile_.scratch + t / kWarp * 3 * kTileHeadSize;
  }
  RUNNEL_DEVICE const float* given(const Held& held) const {
    return tile_.wide + held.item * 3 * kTileHeadSize;  // [row][head][q, k, v]
  }

  // Zeros where there is nothing, or what was held would go on taking registers.
  RUNNEL_DEVICE void load(int64_t offset, int item, int lane, Held& to) const {
    to = {};
    if (item >= items_ || tile_.value[place(item).row] == kFrozen) return;
    to.item = item;
    const float* from = state(offset, place(item));
    const LaneShare share = lane_share(lane);
    for (int i = 0; i < 8; ++i) {
      to.row[i] =
          *reinterpret_cast<const Quad*>(from + share.row(i) * kTileHeadSize + share.column);
    }
    to.z = from[kTileHeadSize * kTileHeadSize + lane];
  }
  RUNNEL_DEVICE void store(int64_t offset, int lane, const Held& held) const {
    float* to = state(offset, place(held.item));
    const LaneShare share = lane_share(lane);
    for (int i = 0; i < 8; ++i) {
      *reinterpret_cast<Quad*>(to + share.row(i) * kTileHeadSize + share.column) = held.row[i];
    }
    to[kTileHeadSize * kTileHeadSize + lane] = held.z;
  }

  RUNNEL_DEVICE void features(int t, Held& held) const {
    const int lane = t % kWarp;
    const float* q = given(held);
    const float* k = q + kTileHeadSize;
    float* query = scratch(t);
    float* key = query + kTileHeadSize;
    float* dot = key + kTileHeadSize;
    const float query_of = phi(q[lane]);
    const float key_of = phi(k[lane]);
    query[place_in_group(lane)] = query_of;
    key[place_in_group(lane)] = key_of;
    held.z += key_of;
    dot[lane % 4 * 8 + lane / 4] = query_of * held.z;
  }

  // S += phi(k) v^T on the lane's share, and its part of phi(q)^T S.
  RUNNEL_DEVICE Quad advance(int t, Held& held) const {
    const LaneShare share = lane_share(t % kWarp);
    const float* query = scratch(t) + share.group * 8;
    const float* key = query + kTileHeadSize;
    const Quad value =
        *reinterpret_cast<const Quad*>(given(held) + 2 * kTileHeadSize + share.column);
    Quad total{};
    for (int i = 0; i < 8; i += 2) {
      Quad sum{};
      for (int r = i; r < i + 2; ++r) {
        for (int j = 0; j < Quad::kWidth; ++j) {
          float& at = held.row[r].at[j];
          at = std::fma(key[r], value.at[j], at);
          sum.at[j] = std::fma(query[r], at, sum.at[j]);
        }
      }
      for (int j = 0; j < Quad::kWidth; ++j) total.at[j] += sum.at[j];
    }
    return total;
  }

  // One of the four sums that RecurSmall's normalizer is made of.
  RUNNEL_DEVICE float part_of_normalizer(int t) const {
    const float* dot = scratch(t) + 2 * kTileHeadSize + t % 4 * 8;
    float part = 0.0F;
    for (int i = 0; i < kTileHeadSize / 4; ++i) part += dot[i];
    return part;
  }

  Block& block_;
  Tile<Sizes>& tile_;
  const int items_;  // heads of rows, a row's side by side
  const int first_head_;
  const int heads_;
  const float eps_;
  const States states_;
  typename Block::template Each<Held> held_[kAhead];
};

}  // namespace runnel::cuda
