// Softmax attention over a cache. backend.h has its equation and the order of its sums.
//
// A row's queries of one head of keys and values are numbered by input, then by head. A block takes
// a tile of kQueries queries through the pages of one segment after the other, two pages at a time.
// First each thread computes the scores of one position with all queries, then each warp the
// weights of one query at a time, then each thread the sums of a column for some queries. If there
// are few tiles, several blocks share the segments of a tile, and a second kernel joins their sums.
// Each query has its own chains of sums, so its bits do not depend on any of this.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/append.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kSegmentPages = 8;
inline constexpr int kSegmentPositions = kSegmentPages * kPagePositions;

// Numbers of several queries, which are read and written at once.
template <int kCount>
struct alignas(kCount >= 4 ? 16 : kCount * 4) OfQueries {
  float at[kCount];
};

// The largest score of some positions, and the sum of their weights.
struct SegmentTotal {
  float most, total;
};

// How the sums over more positions are added to those so far: sums = more * now + sums * before.
struct JoinFactors {
  float before, now;
};
RUNNEL_DEVICE constexpr JoinFactors join_total(const SegmentTotal& more, SegmentTotal& to) {
  const float most = more.most > to.most ? more.most : to.most;
  const JoinFactors by = {exp_nonpositive(to.most - most), exp_nonpositive(more.most - most)};
  to = {most, std::fma(more.total, by.now, to.total * by.before)};
  return by;
}
RUNNEL_DEVICE constexpr float joined(float more, float so_far, const JoinFactors& by) {
  return std::fma(more, by.now, so_far * by.before);
}

RUNNEL_DEVICE inline SegmentTotal no_positions() { return {-INFINITY, 0.0F}; }

// The sums of a segment for one query: dv numbers, then their SegmentTotal.
RUNNEL_DEVICE inline float* segment_sums(const AttendArgs& args, int64_t input, int head,
                                         int64_t segment) {
  const int64_t query = input * args.heads + head;
  return args.sums + (query * args.segments + segment) * (args.dv + 2);
}

template <typename Number, int kQueries>
struct AttendKernel {
  using Args = AttendArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 4;

  // The number of tiles for rows of at most `longest` inputs. If no row has more than one tile,
  // this is the number of rows. Otherwise some tiles may have no queries.
  static constexpr int64_t tiles(const Args& args, int longest) {
    const int group = args.group();
    if (int64_t{longest} * group <= kQueries) return args.rows.count;
    return args.rows.count + int64_t{args.inputs} * group / kQueries;
  }
  static constexpr Launch launch(const Args& args) {
    const int64_t sums = 2 * int64_t{args.dv};
    const int64_t floats =
        queries_size(args) + kQueries * (sums + kOfQuery) + int64_t{kPair} * kStride;
    return {.blocks = args.tiles * args.kv_heads * args.shares, .shared_bytes = floats * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t item = block.index() / args.shares;
    const auto head = static_cast<int>(item % args.kv_heads);
    const Tile tile = tile_of(args, item / args.kv_heads, head);
    if (tile.queries == 0) return;
    block.require(tile.first >= 0 && tile.last_input() < args.inputs,
                  "attend: a row's inputs are among those given");
    const Shared shared = shared_of(block, args);
    const int64_t segments = (tile.most() + kSegmentPositions - 1) / kSegmentPositions;
    int64_t segment = block.index() % args.shares;
    if (segment >= segments) return;
    begin(block, args, tile, shared);
    for (; segment < segments; segment += args.shares) {
      add_segment(block, args, tile, shared, segment);
      if (args.shares > 1) {
        leave(block, args, tile, shared, segment);
      } else {
        join(block, args, tile, shared, segment);
      }
    }
    if (args.shares == 1) finish(block, args, tile, shared);
  }

 private:
  static constexpr int kPair = 2 * kPagePositions;  // positions of two pages, one for each thread
  static_assert(kPair == kThreads);
  // The distance between the scores of two positions, padded to reduce bank conflicts.
  static constexpr int kStride = kQueries > 4 ? kQueries + 4 : kQueries;
  // Queries whose sums a thread computes at once, and the number of such parts of a tile.
  static constexpr int kTogether = kQueries > 4 ? 8 : kQueries > 1 ? 2 : 1;
  static constexpr int kParts = kQueries / kTogether;
  // Queries whose weights a warp computes.
  static constexpr int kOfWarp = (kQueries * kWarp + kThreads - 1) / kThreads;
  // Loads that a thread starts before it needs the first of them.
  static constexpr int kAhead = kQueries > 4 ? 8 : 16;
  // Numbers of each query in shared memory, without the arrays of dk and dv numbers.
  static constexpr int kOfQuery = 9;
  // The size of the queries' numbers. The compiler loads four at once, even at the end, where fewer
  // are used. The size is rounded up so that these loads read nothing that other threads write.
  RUNNEL_DEVICE static constexpr int queries_size(const Args& args) {
    return (args.dk * kQueries + 3) / 4 * 4;
  }

  using Queries = OfQueries<kQueries>;
  using Together = OfQueries<kTogether>;

  struct Tile {
    int32_t slot = -1;
    int queries = 0;     // 0: the block has nothing to do
    int first = 0;       // the input of the first query
    int first_head = 0;  // the head of the first query within its group
    int head = 0;        // of keys and values
    int group = 1;
    int64_t position = 0;  // of the first input

    // Queries after the last one count as the last one, and their results are not used.
    RUNNEL_DEVICE int at(int query) const {
      return first_head + (query < queries ? query : queries - 1);
    }
    RUNNEL_DEVICE int input(int query) const { return at(query) / group; }  // counted from `first`
    RUNNEL_DEVICE int query_head(int query) const { return head * group + at(query) % group; }
    RUNNEL_DEVICE int last_input() const { return first + input(kQueries - 1); }
    // How many positions the last query sees.
    RUNNEL_DEVICE int64_t most() const { return position + input(kQueries - 1) + 1; }
  };

  struct Shared {
    float* q;       // [dk][kQueries]
    float* scores;  // [kPair][kStride]: scores, then weights
    float* sums;    // [kQueries][dv], of the segment
    float* all;     // [kQueries][dv], of the segments before it
    float* keep;    // [2][kQueries]: the factors of the sums so far, for each of two pages
    SegmentTotal *total, *all_total;  // [kQueries]
    JoinFactors* join;                // [kQueries]
    int* input;  // [kQueries]: the input of a query, after the tile's first one
  };
  template <typename Block>
  RUNNEL_DEVICE static Shared shared_of(Block& block, const Args& args) {
    float* at = block.template shared<float>();
    const auto take = [&](int count) {
      float* const here = at;
      at += count;
      return here;
    };
    Shared shared;
    shared.scores = take(kPair * kStride);
    shared.q = take(queries_size(args));
    shared.sums = take(args.dv * kQueries);
    shared.all = take(args.dv * kQueries);
    shared.keep = take(2 * kQueries);
    shared.total = reinterpret_cast<SegmentTotal*>(take(2 * kQueries));
    shared.all_total = reinterpret_cast<SegmentTotal*>(take(2 * kQueries));
    shared.join = reinterpret_cast<JoinFactors*>(take(2 * kQueries));
    shared.input = reinterpret_cast<int*>(take(kQueries));
    return shared;
  }

  RUNNEL_DEVICE static int64_t first_tile(const Args& args, int row) {
    return row + int64_t{args.rows.first[row] - args.rows.first[0]} * args.group() / kQueries;
  }
  RUNNEL_DEVICE static int row_of_tile(const Args& args, int64_t index) {
    int low = 0;
    int high = args.rows.count;  // first_tile(low) <= index < first_tile(high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_tile(args, middle) <= index) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
  RUNNEL_DEVICE static Tile tile_of(const Args& args, int64_t index, int head) {
    int row = static_cast<int>(index);
    int64_t skipped = 0;  // tiles of the row before this one
    if (args.tiles > args.rows.count) {
      row = row_of_tile(args, index);
      skipped = index - first_tile(args, row);
    }
    Tile tile;
    tile.slot = args.rows.slot[row];
    if (tile.slot < 0) return tile;
    const int group = args.group();
    const int inputs = args.rows.first[row + 1] - args.rows.first[row];
    const int64_t rest = int64_t{inputs} * group - skipped * kQueries;
    if (rest <= 0) return tile;
    const auto before = static_cast<int>(skipped * kQueries / group);
    tile.queries = static_cast<int>(rest < kQueries ? rest : kQueries);
    tile.first = args.rows.first[row] - args.rows.first[0] + before;
    tile.first_head = static_cast<int>(skipped * kQueries % group);
    tile.head = head;
    tile.group = group;
    tile.position = args.control[tile.slot].position + before;
    return tile;
  }

  // Calls body(first query, column) for the sums that a thread computes.
  template <typename Body>
  RUNNEL_DEVICE static void each_sum(const Args& args, int t, const Body& body) {
    for (int i = t; i < args.dv * kParts; i += kThreads) body(i / args.dv * kTogether, i % args.dv);
  }
  RUNNEL_DEVICE static bool sees(const Tile& tile, const Shared& shared, int query,
                                 int64_t segment) {
    return tile.position + shared.input[query] >= segment * kSegmentPositions;
  }

  template <typename Block>
  RUNNEL_DEVICE static void begin(Block& block, const Args& args, const Tile& tile,
                                  const Shared& shared) {
    const int units = units_of(args);
    block.phase([&](int t) {
      for (int i = t; i < kQueries * units; i += kThreads) {
        const int query = i / units;
        const int input = tile.input(query);
        const float* q = args.q.row(tile.first + input) + int64_t{tile.query_head(query)} * args.dk;
        turn_unit(args, q, tile.position + input, i % units,
                  [&](int at, float x) { shared.q[at * kQueries + query] = args.scale * x; });
      }
      for (int i = t; i < args.dv * kQueries; i += kThreads) shared.all[i] = 0.0F;
      if (t >= kQueries) return;
      shared.all_total[t] = no_positions();
      shared.input[t] = tile.input(t);
    });
  }

  // A pair of pages, of which the second one may be missing. A query sees the first
  // `seen + shared.input[query]` of their positions.
  struct Pair {
    int64_t page;
    int pages, seen;
  };
  // A lane's copy of the totals of its warp's queries, and two scores of each query.
  struct Weights {
    SegmentTotal total[kOfWarp];
    float low[kOfWarp], high[kOfWarp], most[kOfWarp], sum[kOfWarp];
  };

  // Computes the sums and the totals of a segment.
  template <typename Block>
  RUNNEL_DEVICE static void add_segment(Block& block, const Args& args, const Tile& tile,
                                        const Shared& shared, int64_t segment) {
    typename Block::template Each<Weights> weights;
    block.each([&](int t) {
      for (int n = 0; n < kOfWarp; ++n) weights[t].total[n] = no_positions();
      each_sum(args, t, [&](int query, int column) {
        for (int n = 0; n < kTogether; ++n) shared.sums[(query + n) * args.dv + column] = 0.0F;
      });
    });
    const int64_t seen = (tile.most() + kPagePositions - 1) / kPagePositions;
    const int64_t whole = (segment + 1) * kSegmentPages;
    const int64_t end = seen < whole ? seen : whole;
    for (int64_t page = segment * kSegmentPages; page < end; page += 2) {
      const int64_t left = tile.position + 1 - page * kPagePositions;
      const Pair pair = {page, page + 1 < end ? 2 : 1,
                         static_cast<int>(left < kPair ? left : kPair)};
      block.phase([&](int t) { score(args, tile, shared, pair, t); });
      for (int half = 0; half < pair.pages; ++half) weigh(block, shared, half, weights);
      block.phase([&](int t) { add_values(args, tile, shared, pair, t); });
    }
    block.phase([&](int t) {
      if (t % kWarp != 0) return;
      for (int n = 0; n < kOfWarp; ++n) {
        const int query = query_of(t, n);
        if (query < kQueries) shared.total[query] = weights[t].total[n];
      }
    });
  }
  RUNNEL_DEVICE static constexpr int query_of(int t, int n) {
    return t / kWarp + n * (kThreads / kWarp);
  }

  // The scores of position t of a pair. The score of a position that a query does not see is never
  // used.
  RUNNEL_DEVICE static void score(const Args& args, const Tile& tile, const Shared& shared,
                                  const Pair& pair, int t) {
    Queries sums{};
    if (t < pair.seen + shared.input[kQueries - 1]) {
      const auto page =
          HeadPage<Number>::of(args, tile.slot, pair.page + t / kPagePositions, tile.head);
      const Number* keys = page.keys + t % kPagePositions;
      int i = 0;
      for (; i + kAhead <= args.dk; i += kAhead) add_keys(shared, keys, i, kAhead, sums);
      if (i < args.dk) add_keys(shared, keys, i, args.dk - i, sums);
    }
    RUNNEL_UNROLL
    for (int n = 0; n < kQueries; ++n) {
      if (t >= pair.seen + shared.input[n]) sums.at[n] = -INFINITY;
    }
    *reinterpret_cast<Queries*>(shared.scores + t * kStride) = sums;
  }
  // Adds the products of `count` numbers of a key, at most kAhead, from number `first` on.
  RUNNEL_DEVICE RUNNEL_INLINE static void add_keys(const Shared& shared, const Number* keys,
                                                   int first, int count, Queries& sums) {
    Number ahead[kAhead];
    RUNNEL_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      ahead[i] = i < count ? keys[int64_t{first + i} * kPagePositions] : Number{};
    }
    RUNNEL_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (i >= count) break;
      const auto& q = *reinterpret_cast<const Queries*>(shared.q + (first + i) * kQueries);
      RUNNEL_UNROLL
      for (int n = 0; n < kQueries; ++n)
        sums.at[n] = std::fma(q.at[n], cached(ahead[i]), sums.at[n]);
    }
  }

  // Turns the scores of a page into weights, and adds them to the totals.
  template <typename Block, typename EachWeights>
  RUNNEL_DEVICE static void weigh(Block& block, const Shared& shared, int half,
                                  EachWeights& weights) {
    float* scores = shared.scores + half * kPagePositions * kStride;
    block.each([&](int t) {
      Weights& mine = weights[t];
      RUNNEL_UNROLL
      for (int n = 0; n < kOfWarp; ++n) {
        const int query = query_of(t, n);
        if (query >= kQueries) continue;
        mine.low[n] = scores[t % kWarp * kStride + query];
        mine.high[n] = scores[(t % kWarp + kWarp) * kStride + query];
        mine.most[n] = larger(mine.high[n], larger(mine.low[n], mine.total[n].most));
      }
    });
    RUNNEL_UNROLL
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      RUNNEL_UNROLL
      for (int n = 0; n < kOfWarp; ++n) {
        block.fold_largest([&](int t) -> float& { return weights[t].most[n]; }, mask);
      }
    }
    block.each([&](int t) {
      Weights& mine = weights[t];
      RUNNEL_UNROLL
      for (int n = 0; n < kOfWarp; ++n) {
        mine.low[n] = exp_nonpositive(mine.low[n] - mine.most[n]);
        mine.high[n] = exp_nonpositive(mine.high[n] - mine.most[n]);
        mine.sum[n] = mine.low[n] + mine.high[n];
      }
    });
    RUNNEL_UNROLL
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      RUNNEL_UNROLL
      for (int n = 0; n < kOfWarp; ++n) {
        block.fold([&](int t) -> float& { return weights[t].sum[n]; }, mask);
      }
    }
    block.phase([&](int t) {
      Weights& mine = weights[t];
      RUNNEL_UNROLL
      for (int n = 0; n < kOfWarp; ++n) {
        const int query = query_of(t, n);
        if (query >= kQueries) continue;
        const float keep = exp_nonpositive(mine.total[n].most - mine.most[n]);
        mine.total[n] = {mine.most[n], std::fma(mine.total[n].total, keep, mine.sum[n])};
        scores[t % kWarp * kStride + query] = mine.low[n];
        scores[(t % kWarp + kWarp) * kStride + query] = mine.high[n];
        if (t % kWarp == 0) shared.keep[half * kQueries + query] = keep;
      }
    });
  }
  // Returns `than` if x is a NaN.
  RUNNEL_DEVICE static constexpr float larger(float x, float than) { return x > than ? x : than; }

  RUNNEL_DEVICE static void add_values(const Args& args, const Tile& tile, const Shared& shared,
                                       const Pair& pair, int t) {
    each_sum(args, t, [&](int query, int column) {
      float* held = shared.sums + query * args.dv + column;
      Together sums;
      for (int n = 0; n < kTogether; ++n) sums.at[n] = held[n * args.dv];
      for (int half = 0; half < pair.pages; ++half) {
        add_page(args, tile, shared, pair, half, query, column, sums);
      }
      for (int n = 0; n < kTogether; ++n) held[n * args.dv] = sums.at[n];
    });
  }
  // A column's sums over a page, for the queries from `query` on. All queries see the first
  // positions. After them, a query skips the positions that it does not see.
  RUNNEL_DEVICE RUNNEL_INLINE static void add_page(const Args& args, const Tile& tile,
                                                   const Shared& shared, const Pair& pair, int half,
                                                   int query, int column, Together& sums) {
    const auto& keep = *reinterpret_cast<const Together*>(shared.keep + half * kQueries + query);
    RUNNEL_UNROLL
    for (int n = 0; n < kTogether; ++n) sums.at[n] *= keep.at[n];
    const Number* values =
        HeadPage<Number>::of(args, tile.slot, pair.page + half, tile.head).values + column;
    const float* weights = shared.scores + half * kPagePositions * kStride + query;
    const int seen = pair.seen - half * kPagePositions;
    const int most = up_to_a_page(seen + shared.input[kQueries - 1]);
    int j = 0;
    for (; j + kAhead <= up_to_a_page(seen); j += kAhead) {
      Number ahead[kAhead];
      RUNNEL_UNROLL
      for (int i = 0; i < kAhead; ++i) ahead[i] = values[int64_t{j + i} * args.dv];
      RUNNEL_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const auto& weight = *reinterpret_cast<const Together*>(weights + (j + i) * kStride);
        RUNNEL_UNROLL
        for (int n = 0; n < kTogether; ++n) {
          sums.at[n] = std::fma(weight.at[n], cached(ahead[i]), sums.at[n]);
        }
      }
    }
    for (; j < most; j += kAhead) {
      Number ahead[kAhead];
      RUNNEL_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        ahead[i] = j + i < most ? values[int64_t{j + i} * args.dv] : Number{};
      }
      RUNNEL_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (j + i >= most) break;
        const auto& weight = *reinterpret_cast<const Together*>(weights + (j + i) * kStride);
        RUNNEL_UNROLL
        for (int n = 0; n < kTogether; ++n) {
          const float sum = std::fma(weight.at[n], cached(ahead[i]), sums.at[n]);
          if (j + i < seen + shared.input[query + n]) sums.at[n] = sum;
        }
      }
    }
  }
  RUNNEL_DEVICE static constexpr int up_to_a_page(int positions) {
    return positions < kPagePositions ? positions : kPagePositions;
  }

  // Leaves a segment's sums to JoinKernel.
  template <typename Block>
  RUNNEL_DEVICE static void leave(Block& block, const Args& args, const Tile& tile,
                                  const Shared& shared, int64_t segment) {
    const auto place = [&](int query) {
      return segment_sums(args, tile.first + tile.input(query), tile.query_head(query), segment);
    };
    const auto is_wanted = [&](int query) {
      return query < tile.queries && sees(tile, shared, query, segment);
    };
    block.each([&](int t) {
      each_sum(args, t, [&](int first, int column) {
        for (int query = first; query < first + kTogether; ++query) {
          if (is_wanted(query)) place(query)[column] = shared.sums[query * args.dv + column];
        }
      });
      if (t >= kQueries || !is_wanted(t)) return;
      float* total = place(t) + args.dv;
      total[0] = shared.total[t].most;
      total[1] = shared.total[t].total;
    });
  }

  // Adds a segment's sums to those of the segments before it.
  template <typename Block>
  RUNNEL_DEVICE static void join(Block& block, const Args& args, const Tile& tile,
                                 const Shared& shared, int64_t segment) {
    block.phase([&](int t) {
      if (t >= kQueries || !sees(tile, shared, t, segment)) return;
      shared.join[t] = join_total(shared.total[t], shared.all_total[t]);
    });
    block.each([&](int t) {
      each_sum(args, t, [&](int first, int column) {
        for (int query = first; query < first + kTogether; ++query) {
          if (!sees(tile, shared, query, segment)) continue;
          const int at = query * args.dv + column;
          shared.all[at] = joined(shared.sums[at], shared.all[at], shared.join[query]);
        }
      });
    });
  }

  template <typename Block>
  RUNNEL_DEVICE static void finish(Block& block, const Args& args, const Tile& tile,
                                   const Shared& shared) {
    block.each([&](int t) {
      each_sum(args, t, [&](int first, int column) {
        for (int query = first; query < first + kTogether; ++query) {
          if (query >= tile.queries) return;
          float* out = args.out + (tile.first + tile.input(query)) * args.out_stride +
                       int64_t{tile.query_head(query)} * args.dv;
          out[column] = shared.all[query * args.dv + column] / shared.all_total[query].total;
        }
      });
    });
  }
};

// Joins the sums of the segments. A block computes one head of one input.
struct JoinKernel {
  using Args = AttendArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(const Args& args) {
    return {.blocks = int64_t{args.inputs} * args.heads, .shared_bytes = 0};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const auto input = static_cast<int>(block.index() / args.heads);
    const auto head = static_cast<int>(block.index() % args.heads);
    const int row = row_of(args.rows.first, args.rows.count, input);
    const int32_t slot = args.rows.slot[row];
    if (slot < 0) return;
    const int64_t position =
        args.control[slot].position + args.rows.first[0] + input - args.rows.first[row];
    const int64_t segments = position / kSegmentPositions + 1;
    float* out = args.out + input * args.out_stride + int64_t{head} * args.dv;
    block.each([&](int t) {
      for (int column = t; column < args.dv; column += kThreads) {
        SegmentTotal all = no_positions();
        float sum = 0.0F;
        for (int64_t segment = 0; segment < segments; ++segment) {
          const float* sums = segment_sums(args, input, head, segment);
          const JoinFactors by = join_total({sums[args.dv], sums[args.dv + 1]}, all);
          sum = joined(sums[column], sum, by);
        }
        out[column] = sum / all.total;
      }
    });
  }
};

}  // namespace runnel::cuda
