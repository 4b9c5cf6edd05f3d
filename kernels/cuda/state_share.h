// How the threads of a block share one head's state S, and how they go through their shares.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

// Four adjacent columns, which are loaded and stored at once.
struct alignas(16) Quad {
  static constexpr int kWidth = 4;
  float at[4];
};
struct Single {
  static constexpr int kWidth = 1;
  float at[1];
};

// The elements of S that a thread owns: `Columns::kWidth` columns of every `groups`-th row.
struct StateShare {
  int group = 0;   // the first row
  int groups = 0;  // the distance between rows
  int column = 0;  // the first column
};

// Assigns elements of S to threads. Adjacent threads have adjacent columns, and groups of threads
// take the rows round-robin. Threads that are left over get group >= groups, and own nothing.
template <typename Columns>
RUNNEL_DEVICE constexpr StateShare state_share(int thread, int threads, int dv) {
  const int across = (dv + Columns::kWidth - 1) / Columns::kWidth;
  const int groups = across < threads ? threads / across : 1;
  return {.group = thread / across, .groups = groups, .column = thread % across * Columns::kWidth};
}

// The columns of S [dk][stride] that a block owns: all of them or a range.
struct StatePlace {
  float* state;  // the first of these columns in the first row
  int dk;
  int stride;  // from one row of S to the next
};

// kRows > 0: a thread keeps kRows rows of S in registers, and fits() must be true for the shape.
// kRows = 0: S stays in memory. `columns` is the number of columns of a block.
template <typename Columns, int kRows, int kThreads>
struct SharedState {
  // A thread's share of S.
  struct Held {
    Columns row[kRows > 0 ? kRows : 1];
  };

  RUNNEL_DEVICE static bool fits(int dk, int columns) {
    const int across = columns / Columns::kWidth;
    return kRows > 0 && columns % Columns::kWidth == 0 && across <= kThreads &&
           kThreads % across == 0 && dk <= kThreads / across * kRows;
  }

  RUNNEL_DEVICE static StateShare share_of(int columns, int t) {
    return state_share<Columns>(t, kThreads, columns);
  }

  RUNNEL_DEVICE static Columns& in_memory(const StatePlace& at, const StateShare& share, int row) {
    return *reinterpret_cast<Columns*>(at.state + int64_t{row} * at.stride + share.column);
  }

  // Calls body(row, its columns) for a thread's rows of S.
  template <typename Body>
  RUNNEL_DEVICE static void each_row(const StateShare& share, const StatePlace& at, Held& held,
                                     const Body& body) {
    if constexpr (kRows > 0) {
      for (int i = 0; i < kRows; ++i) {
        const int row = share.group + i * share.groups;
        if (row < at.dk) body(row, held.row[i]);
      }
    } else {
      for (int row = share.group; row < at.dk; row += share.groups) {
        body(row, in_memory(at, share, row));
      }
    }
  }

  // Reads a thread's share into registers, and writes it back.
  RUNNEL_DEVICE static void load(const StateShare& share, const StatePlace& at, Held& held) {
    if constexpr (kRows > 0) {
      each_row(share, at, held, [&](int row, Columns& here) { here = in_memory(at, share, row); });
    }
  }
  RUNNEL_DEVICE static void store(const StateShare& share, const StatePlace& at, Held& held) {
    if constexpr (kRows > 0) {
      each_row(share, at, held,
               [&](int row, const Columns& here) { in_memory(at, share, row) = here; });
    }
  }

  // Writes the sums of a thread's columns over its own rows to sums [groups][columns].
  RUNNEL_DEVICE static void put(const Columns& sum, const StateShare& share, int columns,
                                float* sums) {
    float* to = sums + share.group * columns + share.column;
    for (int j = 0; j < Columns::kWidth; ++j) to[j] = sum.at[j];
  }
  // The sums of a thread's columns over all groups, in their order.
  RUNNEL_DEVICE static Columns totals(const float* sums, int columns, const StateShare& share) {
    Columns sum{};
    RUNNEL_UNROLL_PAIRS
    for (int group = 0; group < share.groups; ++group) {
      const auto& more = *reinterpret_cast<const Columns*>(sums + group * columns + share.column);
      for (int j = 0; j < Columns::kWidth; ++j) sum.at[j] += more.at[j];
    }
    return sum;
  }
  // The sum of one column.
  RUNNEL_DEVICE static float total(const float* sums, int columns, int column) {
    const int groups = share_of(columns, 0).groups;
    float sum = 0.0F;
    for (int group = 0; group < groups; ++group) sum += sums[group * columns + column];
    return sum;
  }
};

}  // namespace runnel::cuda
