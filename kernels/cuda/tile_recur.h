// Linear attention of a tile's rows. A warp computes one head of one row, with the order of sums of
// RecurSmall in recur.h, with either form of the state. Loads of states into registers, and of logs
// into shared memory, start before the product that computes the queries.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/replay.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_weights.h"
#include "kernels/device.h"

namespace runnel::cuda {

// A lane owns four adjacent columns of S, in both rows of every fourth pair {g, g + 16}.
struct LaneShare {
  int group;   // the first pair of rows: 0 to 3
  int column;  // the first column
  // Row `i` of the lane's eight rows is group + ahead(i).
  RUNNEL_DEVICE static constexpr int ahead(int i) { return i / 2 * 4 + i % 2 * 16; }
  RUNNEL_DEVICE int row(int i) const { return group + ahead(i); }
  // The part of S that the lane owns, as Quads: row `i` is at index quads_ahead(i).
  template <typename Float>
  RUNNEL_DEVICE auto* quads(Float* state) const {
    using Of = std::conditional_t<std::is_const_v<Float>, const Quad, Quad>;
    return reinterpret_cast<Of*>(state + group * kTileHeadSize + column);
  }
  RUNNEL_DEVICE static constexpr int quads_ahead(int i) {
    return ahead(i) * kTileHeadSize / Quad::kWidth;
  }
};
RUNNEL_DEVICE constexpr LaneShare lane_share(int lane) { return {lane / 8, lane % 8 * 4}; }

// The index of a row within its group's data: row(i) of group g is at 8 g + i.
RUNNEL_DEVICE constexpr int place_in_group(int row) {
  return row % 4 * 8 + row % 16 / 4 * 2 + row / 16;
}

// The addresses and the form of a tile's states. The plain form is replay with a flush at every
// position and no log.
struct TileStates {
  States states;
  float eps;
  int flush;        // positions from one write of S to the next, a power of two
  int head_floats;  // from one head's state to the next one's

  RUNNEL_DEVICE static constexpr TileStates of(StateForm form, const States& states, float eps) {
    return {states, eps, form == StateForm::kReplay ? kReplay : 1,
            static_cast<int>(state_floats(form, kTileHeadSize, kTileHeadSize))};
  }
};

template <typename Block, typename Sizes>
class TileRecurrence {
 public:
  // The block computes its share of the heads.
  RUNNEL_DEVICE TileRecurrence(Block& block, Tile<Sizes>& tile, int rows, Rank rank,
                               const TileStates& states)
      : block_(block), tile_(tile), rank_(rank), rows_(rows), states_(states) {}

  // To be called by all threads before gather().
  RUNNEL_DEVICE void prepare(int t) {
    if (t < kTileWarps * kStatesAhead) {
      block_.prepare(&tile_.logged[t / kStatesAhead][t % kStatesAhead], kWarp);
    }
  }

  // Starts loading thread t's part of the first states of a layer, which are at `offset` of each
  // slot, for the step `step`.
  RUNNEL_DEVICE RUNNEL_INLINE void fetch(int64_t offset, int step, int t) {
    RUNNEL_UNROLL
    for (int i = 0; i < kStatesAhead; ++i) {
      load({offset, step, i}, i * kTileWarps + t / kWarp, t % kWarp, held_[i][t]);
    }
  }

  // Advances the fetched states over one input of each live row. Calls out(row, column, two) with
  // the outputs at `column` and at the next column.
  template <typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void run(int64_t offset, int step, const Out& out) {
    constexpr int kTogether = kStatesAhead * kTileWarps;
    bool more = true;
    for (int first = kTogether; more; first += kTogether) {
      more = first < items();
      RUNNEL_UNROLL
      for (int i = 0; i < kStatesAhead; ++i) {
        run_items({offset, step, i}, more ? first + i * kTileWarps : -1, held_[i], out);
      }
      ++turn_;
    }
  }

 private:
  struct Held {
    Quad row[8];
    float z = 0.0F;  // z of the lane's row
    int item = -1;   // -1: belongs to no row that steps
    int batch_row = 0;
    int logged = 0;  // entries in the log
  };
  struct Place {
    int item = -1, row = 0, head = 0;
  };
  // A layer, a step, and the index of a state among those that a warp is loading.
  struct Turn {
    int64_t offset;
    int step;
    int ahead;
  };

  static constexpr int kLogOffset = kTileHeadSize * kTileHeadSize + kTileHeadSize;  // floats
  static constexpr int kEntryFloats = 2 * kTileHeadSize;

  // The block's heads. They are computed each time, because registers are scarce: a spilled value
  // would be read back after the loads of the states, and wait for them.
  RUNNEL_DEVICE int first_head() const { return rank_.first(Sizes::kHeads); }
  RUNNEL_DEVICE int heads() const { return rank_.count(Sizes::kHeads); }
  // Heads of rows; the heads of a row are adjacent.
  RUNNEL_DEVICE int items() const { return rows_ * heads(); }
  RUNNEL_DEVICE int row_of(int item) const {
    if constexpr ((Sizes::kHeads & (Sizes::kHeads - 1)) == 0) {
      int log = 0;  // of the network's heads, which are a power of two
      while (Sizes::kHeads >> log > 1) ++log;
      return item >> (log > rank_.log ? log - rank_.log : 0);
    } else {
      return static_cast<int>(static_cast<unsigned>(item) / static_cast<unsigned>(heads()));
    }
  }
  // The index of the head among all heads of the network.
  RUNNEL_DEVICE int head_of(const Held& held) const {
    return first_head() + held.item - held.batch_row * heads();
  }
  RUNNEL_DEVICE float* state(int64_t offset, const Held& held) const {
    const States& states = states_.states;
    return reinterpret_cast<float*>(states.base + states.offset + offset +
                                    tile_.slot[held.batch_row] * states.slot_bytes) +
           head_of(held) * states_.head_floats;
  }

  // Each warp computes one item. Starts loading the items from `behind` on, unless it is negative.
  template <typename Out>
  RUNNEL_DEVICE RUNNEL_INLINE void run_items(const Turn& turn, int behind,
                                             typename Block::template Each<Held>& held,
                                             const Out& out) {
    typename Block::template Each<Quad> sums;
    typename Block::template Each<Half> half;
    typename Block::template Each<float> normalizer;
    typename Block::template Each<Place> place;
    block_.each([&](int t) {
      place[t] = {held[t].item, held[t].batch_row, head_of(held[t])};
      if (states_.flush > 1) [[unlikely]]
        block_.await(&tile_.logged[t / kWarp][turn.ahead], turn_);
      if (held[t].item < 0) return;
      catch_up(turn, t, held[t]);
      features(t, held[t]);
    });
    block_.each([&](int t) {
      if (held[t].item >= 0) {
        sums[t] = advance(t, held[t]);
        normalizer[t] = part_of_normalizer(t);
        store(turn, t, held[t]);
      }
      if (behind >= 0) load(turn, behind + t / kWarp, t % kWarp, held[t]);
    });
    // A lane has sums of four columns. Lanes of even groups keep the first two, and lanes of odd
    // groups keep the last two.
    block_.each([&](int t) { half[t] = half_of(sums[t], has_upper(t)); });
    for (int j = 0; j < 2; ++j) {
      block_.fold([&](int t) -> float& { return half[t].kept[j]; },
                  [&](int t) -> float& { return half[t].given[j]; }, 8);
    }
    for (int j = 0; j < 2; ++j) {
      block_.fold([&](int t) -> float& { return half[t].kept[j]; }, 16);
    }
    for (int mask = 1; mask <= 2; mask *= 2) {
      block_.fold([&](int t) -> float& { return normalizer[t]; }, mask);
    }
    block_.each([&](int t) {
      const LaneShare share = lane_share(t % kWarp);
      if (place[t].item < 0 || share.group >= 2) return;  // two lanes have the same result
      const float divisor = normalizer[t] + states_.eps;
      const int column = place[t].head * kTileHeadSize + share.column + (has_upper(t) ? 2 : 0);
      out(place[t].row, column, Two{{half[t].kept[0] / divisor, half[t].kept[1] / divisor}});
    });
  }
  // The two sums that a thread keeps, and the two that it gives to the neighbouring group.
  struct Half {
    float kept[2], given[2];
  };
  RUNNEL_DEVICE static bool has_upper(int t) { return lane_share(t % kWarp).group % 2 != 0; }
  RUNNEL_DEVICE static Half half_of(const Quad& sums, bool upper) {
    const float* at = sums.at;
    return {{upper ? at[2] : at[0], upper ? at[3] : at[1]},
            {upper ? at[0] : at[2], upper ? at[1] : at[3]}};
  }

  // A warp's scratch memory: phi(q) and phi(k), by place_in_group(), and their parts of phi(q) . z,
  // [row % 4][8].
  RUNNEL_DEVICE float* scratch(int t) const {
    return tile_.projected + t / kWarp * 3 * kTileHeadSize;
  }
  RUNNEL_DEVICE const float* given(const Held& held) const {
    return tile_.wide + held.item * 3 * kTileHeadSize;  // [row][head][q, k, v]
  }

  // Loads zeros if there is no item. Otherwise the old values would stay alive in registers.
  RUNNEL_DEVICE RUNNEL_INLINE void load(const Turn& turn, int item, int lane, Held& to) {
    const int row = item < items() ? row_of(item) : 0;
    if (item < items() && tile_.live(row)) {
      to.item = item;
      to.batch_row = row;
      to.logged = 0;
      const float* from = state(turn.offset, to);
      const Quad* quads = lane_share(lane).quads(from);
      for (int i = 0; i < 8; ++i) to.row[i] = quads[LaneShare::quads_ahead(i)];
      to.z = from[kTileHeadSize * kTileHeadSize + lane];
      if (states_.flush > 1) [[unlikely]]
        bring_log(turn, from + kLogOffset, lane, to);
    } else {
      to = {};
    }
    if (states_.flush > 1) [[unlikely]]
      block_.brought(&tile_.logged[item % kTileWarps][turn.ahead]);
  }
  RUNNEL_DEVICE RUNNEL_INLINE void bring_log(const Turn& turn, const float* from, int lane,
                                             Held& to) {
    to.logged = (static_cast<int>(tile_.position[to.batch_row]) + turn.step) & (states_.flush - 1);
    const auto* entries = reinterpret_cast<const Quad*>(from);
    auto* log = reinterpret_cast<Quad*>(&tile_.logs[to.item % kTileWarps][turn.ahead]);
    RUNNEL_ROLL
    for (int i = lane; i < to.logged * kEntryFloats / Quad::kWidth; i += kWarp) {
      block_.bring(log + i, entries + i);
    }
  }
  // Writes the result of a step: the state at a flush, otherwise an entry of the log.
  RUNNEL_DEVICE RUNNEL_INLINE void store(const Turn& turn, int t, const Held& held) const {
    const int lane = t % kWarp;
    float* to = state(turn.offset, held);
    if (held.logged + 1 < states_.flush) [[unlikely]] {
      float* entry = to + kLogOffset + held.logged * kEntryFloats;
      entry[lane] = scratch(t)[kTileHeadSize + place_in_group(lane)];
      entry[kTileHeadSize + lane] = given(held)[2 * kTileHeadSize + lane];
      return;
    }
    Quad* quads = lane_share(lane).quads(to);
    for (int i = 0; i < 8; ++i) quads[LaneShare::quads_ahead(i)] = held.row[i];
    to[kTileHeadSize * kTileHeadSize + lane] = held.z;
  }

  // Brings S and z up to date with the entries of the log.
  RUNNEL_DEVICE RUNNEL_INLINE void catch_up(const Turn& turn, int t, Held& held) const {
    const LaneShare share = lane_share(t % kWarp);
    const TileLog& log = tile_.logs[t / kWarp][turn.ahead];
    RUNNEL_ROLL
    for (int entry = 0; entry < held.logged; ++entry) {
      const float* key = log[entry][0];
      const Quad value = *reinterpret_cast<const Quad*>(log[entry][1] + share.column);
      RUNNEL_UNROLL
      for (int i = 0; i < 8; ++i) {
        RUNNEL_UNROLL
        for (int j = 0; j < Quad::kWidth; ++j) {
          float& at = held.row[i].at[j];
          at = std::fma(key[share.row(i)], value.at[j], at);
        }
      }
      held.z += key[t % kWarp];
    }
  }

  RUNNEL_DEVICE RUNNEL_INLINE void features(int t, Held& held) const {
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

  // Computes S += phi(k) v^T on the lane's share. Returns its part of phi(q)^T S.
  RUNNEL_DEVICE RUNNEL_INLINE Quad advance(int t, Held& held) const {
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

  // One of the four sums of which RecurSmall's normalizer consists.
  RUNNEL_DEVICE float part_of_normalizer(int t) const {
    const float* dot = scratch(t) + 2 * kTileHeadSize + t % 4 * 8;
    float part = 0.0F;
    for (int i = 0; i < kTileHeadSize / 4; ++i) part += dot[i];
    return part;
  }

  Block& block_;
  Tile<Sizes>& tile_;
  const Rank rank_;  // of the block among the tile's blocks
  const int rows_;
  const TileStates states_;
  int turn_ = 0;  // of the states that are being loaded
  typename Block::template Each<Held> held_[kStatesAhead];
};

}  // namespace runnel::cuda
