// The end of a step: samples the values of a tile's rows. Each block of the tile samples some of
// the rows, from the head's outputs in its shared memory, and sends their values to the other
// blocks.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_weights.h"
#include "kernels/cuda/whole_args.h"
#include "kernels/device.h"

namespace runnel::cuda {

template <typename Block, typename Sizes>
class TileSampling {
 public:
  RUNNEL_DEVICE TileSampling(Block& block, Tile<Sizes>& tile, const WholeArgs& args, Rank rank,
                             int rows)
      : block_(block), tile_(tile), args_(args), rank_(rank), rows_(rows) {}

  // The rank that samples a row. Rank r has the heads from heads * r / ranks on. So with 16 ranks
  // and fewer heads, the even ranks have no heads, and sample the first rows.
  RUNNEL_DEVICE int owner(int row) const {
    const int at = row & (rank_.of() - 1);
    return (at << 1 & (rank_.of() - 1)) | at << 1 >> rank_.log;
  }
  // The first row of the tile that the block samples. The distance to the next ones is the number
  // of ranks.
  RUNNEL_DEVICE int first_sampled() const {
    return rank_.at >> 1 | (rank_.at & 1) << rank_.log >> 1;
  }

  // Draws the rows' values and sends them to all blocks. While the blocks meet, those with drawn
  // values compute the log-probabilities, if the head allows it.
  RUNNEL_DEVICE RUNNEL_INLINE void sample(int step) {
    const bool more = step + 1 < args_.steps;
    const int at_once = head_rows_at_once(args_.head) << rank_.log;
    RUNNEL_ROLL
    for (int begin = 0; begin < rows_; begin += at_once) {
      const int end = rows_ < begin + at_once ? rows_ : begin + at_once;
      const int from = begin + first_sampled();
      freeze(begin, end, step, more);
      if (from < end) draw(jobs(from, step, true), more);
      block_.meet(more ? (end - begin) * 4 : 0, [&] {
        if (from < end) weigh(jobs(from, step, false));
      });
    }
  }

 private:
  // The tile's first row in the batch, and its first block in the cluster. They are computed each
  // time they are needed, because registers are scarce.
  RUNNEL_DEVICE int first() const {
    return static_cast<int>(block_.index() >> rank_.log) * args_.tile_rows;
  }
  RUNNEL_DEVICE int first_rank() const { return block_.rank() & -rank_.of(); }

  // Rows of [begin, end) that have not stepped stay frozen, and get no value.
  RUNNEL_DEVICE RUNNEL_INLINE void freeze(int begin, int end, int step, bool more) {
    const SampledTo to = args_.to.from(step * args_.to_stride + first());
    // A phase is needed, because draw() may send to this block's own values.
    block_.phase([&](int t) {
      if (t < begin || t >= end || owner(t) != rank_.at || tile_.live(t)) return;
      to.rows[t].row = -1;
      for (int other = 0; more && other < rank_.of(); ++other) {
        block_.send(first_rank() + other, tile_.value + t, kFrozen);
      }
    });
  }

  template <typename Job>
  RUNNEL_DEVICE RUNNEL_INLINE void draw(const Job& job, bool more) {
    const auto chosen = [&](int thread, const RowJob& of, int32_t value, bool last) {
      if (!more || thread >= rank_.of()) return;
      block_.send(first_rank() + thread, tile_.value + of.row - first(), last ? kFrozen : value);
    };
    if constexpr (Sizes::kHead == HeadKind::kMixtureOfLogistics) {
      typename Block::template Each<RowJob> jobs;
      block_.each([&](int t) { jobs[t] = job(t / kWarp); });
      MixtureRows<Block>(block_, args_.head.components).draw(jobs, chosen);
    } else if (const RowJob row = job(0); row.row >= 0) {
      sample_categorical(block_, args_.head.values, row, chosen);
    }
  }

  template <typename Job>
  RUNNEL_DEVICE RUNNEL_INLINE void weigh(const Job& job) {
    if constexpr (Sizes::kHead == HeadKind::kMixtureOfLogistics) {
      typename Block::template Each<RowJob> jobs;
      block_.each([&](int t) { jobs[t] = job(t / kWarp); });
      MixtureRows<Block>(block_, args_.head.components).weigh(jobs);
    }
  }

  // Row `from` and the rows after it that are drawn at the same time. A row that has not stepped is
  // left out; only the block that draws needs to know this (`draws`).
  RUNNEL_DEVICE auto jobs(int from, int step, bool draws) const {
    const SampledTo to = args_.to.from(step * args_.to_stride + first());
    return [=, this](int i) {
      const int at = from + (i << rank_.log);
      const bool wanted = at < rows_ && (!draws || tile_.live(at));
      const int row = wanted ? at : from;
      return RowJob{
          .head = tile_.wide + (row >> rank_.log) * args_.head.width(),
          .row = wanted ? first() + row : -1,
          .inputs = 1,
          .control = args_.control + (wanted && tile_.slot[row] >= 0 ? tile_.slot[row] : 0),
          .to = to.from(row),
          .recent = ring(row)};
    };
  }

  RUNNEL_DEVICE RecentRing ring(int row) const {
    if constexpr (Sizes::kHead != HeadKind::kCategorical) return {};
    return args_.recent.of(tile_.slot[row] >= 0 ? tile_.slot[row] : 0);
  }

  Block& block_;
  Tile<Sizes>& tile_;
  const WholeArgs& args_;
  const Rank rank_;  // of this block among the tile's blocks
  const int rows_;
};

}  // namespace runnel::cuda
