// The inputs of a row that a launch computes. Whole chunks of positions are computed on tensor
// cores (chunks.h). The inputs before and after them are computed position by position (recur.h).
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kChunk = 64;  // positions; a chunk begins at a multiple of this

enum class Part : uint8_t { kAll, kBefore, kChunks, kBehind };

// The inputs [begin, end) of the batch, which are `skipped` inputs after the row's first one.
struct RowPart {
  int32_t slot = -1;
  int begin = 0, end = 0;
  int skipped = 0;
};

// The whole chunks of a row: the input where they begin, and the number of their inputs.
struct Chunks {
  int begin = 0;
  int inputs = 0;
};
RUNNEL_DEVICE constexpr Chunks chunks_of(int64_t position, int inputs) {
  const int before = static_cast<int>((kChunk - position % kChunk) % kChunk);
  if (inputs < before + kChunk) return {inputs, 0};
  return {before, (inputs - before) / kChunk * kChunk};
}

// The part of a row. It is empty if the row is frozen.
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

// A matrix of fp32, with a row for each input.
struct InputMatrix {
  const float* data;  // null: none
  int64_t stride;

  RUNNEL_DEVICE const float* row(int64_t input) const { return data + input * stride; }
};

// A part of a slot's state, `offset` floats after the start of the layer's state.
template <typename Args>
RUNNEL_DEVICE float* head_state(const Args& args, int32_t slot, int64_t offset) {
  return reinterpret_cast<float*>(args.states.base + slot * args.states.slot_bytes +
                                  args.states.offset) +
         offset;
}

}  // namespace runnel::cuda
