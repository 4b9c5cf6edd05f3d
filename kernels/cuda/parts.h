// Which of a row's inputs a launch takes. Whole chunks of positions go over tensor cores
// (chunks.h); what is before and behind them goes position by position (recur.h).
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kChunk = 64;  // positions, from a multiple of it on

enum class Part : uint8_t { kAll, kBefore, kChunks, kBehind };

// The inputs [begin, end) of the batch, `skipped` behind the row's first.
struct RowPart {
  int32_t slot = -1;
  int begin = 0, end = 0;
  int skipped = 0;
};

// Of a row's inputs, where the whole chunks begin and how many inputs they have together.
struct Chunks {
  int begin = 0;
  int inputs = 0;
};
RUNNEL_DEVICE constexpr Chunks chunks_of(int64_t position, int inputs) {
  const int before = static_cast<int>((kChunk - position % kChunk) % kChunk);
  if (inputs < before + kChunk) return {inputs, 0};
  return {before, (inputs - before) / kChunk * kChunk};
}

// Nothing of a row that is frozen.
RUNNEL_DEVICE constexpr RowPart part_of(const Rows& rows, const Control* control, int row,
                                        Part part) {
  const int32_t slot = rows.slot[row];
  if (slot < 0) return {};
  const int first = rows.first[row] - rows.first[0];
  const int inputs = rows.first[row + 1] - rows.first[row];
  if (part == Part::kAll) return {slot, first, first + inputs, 0};
  const Chunks chunks = chunks_of(control[slot].position, inputs);
  const int behind = chunks.begin + chunks.inputs;
  const int from = part == Part::kBefore ? 0 : part == Part::kChunks ? chunks.begin : behind;
  const int to = part == Part::kBefore ? chunks.begin : part == Part::kChunks ? behind : inputs;
  return {slot, first + from, first + to, from};
}

// fp32, a row for each input.
struct InputMatrix {
  const float* data;  // null: none
  int64_t stride;

  RUNNEL_DEVICE const float* row(int64_t input) const { return data + input * stride; }
};

// Where a part of a slot's state is, `offset` floats from the start of its layer's.
template <typename Args>
RUNNEL_DEVICE float* head_state(const Args& args, int32_t slot, int64_t offset) {
  return reinterpret_cast<float*>(args.states.base + slot * args.states.slot_bytes +
                                  args.states.offset) +
         offset;
}

}  // namespace runnel::cuda
