// The rows of a run, and the arrays that its steps read, copied to the device's memory. Every layer
// or step reads them, and host memory is slow to reach.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cuda/stage.h"

namespace runnel::cuda {

class StagedRows {
 public:
  static constexpr int64_t kRowsBytes = 64 << 10;  // a server has at most 4,096 rows
  static constexpr int kArrays = 3;                // values, and the two arrays of Outputs
  static constexpr int64_t kArrayBytes =
      32 << 10;  // longer arrays belong to prompts, which are read once

  // `rows` and `arrays` are device memory of kRowsBytes and of kArrays * kArrayBytes.
  StagedRows(Buffer rows, Buffer arrays) : here_at_(std::move(rows)), copies_(std::move(arrays)) {}

  bool is_empty() const { return staged_.count == 0; }

  // From here to clear(), operations on these rows use the device's memory to read slot and first,
  // and to freeze rows. Returns the arguments of the launch that fills this memory.
  StageArgs stage(Rows rows) {
    check((2 * int64_t{rows.count} + 1) * 4 <= kRowsBytes, "run: at most 8191 rows");
    int32_t* slot = here_at_.as<int32_t>();
    here_ = {slot, slot + rows.count, rows.count};
    staged_ = rows;
    longest_ = 0;
    arrays_ = 0;
    for (int row = 0; row < rows.count; ++row) {
      longest_ = std::max(longest_, rows.first[row + 1] - rows.first[row]);
    }
    return {.slot = rows.slot,
            .first = rows.first,
            .count = rows.count,
            .slot_here = slot,
            .first_here = slot + rows.count};
  }
  void clear() { staged_ = {}; }

  // The rows as the device can read them: a part of the staged rows, or other rows unchanged.
  Rows here(Rows rows) const {
    const int64_t begin = place(rows);
    if (begin >= staged_.count) return rows;
    return {here_.slot + begin, here_.first + begin, rows.count};
  }
  // An upper bound on the inputs of a row. If the host cannot read the rows, it is `inputs`, the
  // inputs of all rows.
  int longest(Rows rows, int inputs) const {
    return place(rows) < staged_.count ? longest_ : inputs;
  }
  // The place where the next launch reads an array that every step of the run reads.
  Kept kept(const int32_t* from, int64_t count) {
    if (is_empty()) return {from, nullptr};
    if (const int32_t* here = nearest(from); here != from) return {here, nullptr};
    if (arrays_ == kArrays || count * 4 > kArrayBytes) return {from, nullptr};
    kept_[arrays_] = from;
    return {from, copy(arrays_++)};
  }
  // The address where an array of host memory can be read: its copy, if an earlier launch of the
  // run has made one.
  const int32_t* nearest(const int32_t* from) const {
    for (int i = 0; i < arrays_ && !is_empty(); ++i) {
      if (kept_[i] == from) return copy(i);
    }
    return from;
  }

 private:
  int32_t* copy(int i) const { return copies_.as<int32_t>() + i * (kArrayBytes / 4); }
  // The index of the first of `rows` among the staged rows. If it is not a staged row: the number
  // of staged rows, or more.
  int64_t place(Rows rows) const {
    return static_cast<int64_t>(
        (reinterpret_cast<uintptr_t>(rows.slot) - reinterpret_cast<uintptr_t>(staged_.slot)) / 4);
  }

  Buffer here_at_, copies_;
  Rows staged_{};                      // count 0: none
  Rows here_{};                        // the same on the device
  int longest_ = 0;                    // the maximum inputs of a staged row
  const int32_t* kept_[kArrays] = {};  // the host's arrays whose copies are in copies_
  int arrays_ = 0;
};

}  // namespace runnel::cuda
