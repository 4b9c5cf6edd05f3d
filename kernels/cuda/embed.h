// The input layer. A block computes one input.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stage.h"
#include "kernels/device.h"

namespace runnel::cuda {

// The row of input `input`, counted from first[0]: the last row that begins at or before it and is
// not empty. Rows that step come first and have one input each, so the first guess is usually
// right.
RUNNEL_DEVICE constexpr int row_of(const int32_t* first, int rows, int input) {
  const int at = first[0] + input;
  if (input < rows && first[input] == at && first[input + 1] == at + 1) return input;
  int low = 0;
  int high = rows;  // first[low] <= at < first[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first[middle] <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

RUNNEL_DEVICE constexpr float position_column(const Embedding& embedding, int64_t position,
                                              int column) {
  if (embedding.position == PositionKind::kTable) {
    return static_cast<const float*>(
        embedding.positions.data)[position * embedding.positions.stride + column];
  }
  return sinusoid(position, column, embedding.position_width);
}

// Column `c` of the network's input for a value at a position. `scale`: the factor of the value's
// vector.
RUNNEL_DEVICE constexpr float embedded(const Embedding& embedding, int32_t value, int64_t position,
                                       int c, float scale = 1.0F) {
  const int width = embedding.values.cols;
  const int positions = embedding.position == PositionKind::kNone ? 0 : embedding.position_width;
  const bool add = embedding.combine == Combine::kAdd;
  const int column = add ? c : c - width;
  const float* vector =
      static_cast<const float*>(embedding.values.data) + int64_t{value} * embedding.values.stride;
  const float at = c < width ? scale * vector[c] : 0.0F;
  if (column < 0 || column >= positions) return at;
  const float more = position_column(embedding, position, column);
  return add ? at + more : more;
}

template <typename Block>
RUNNEL_DEVICE void require_known(Block& block, const Embedding& embedding, int32_t value,
                                 int64_t position) {
  block.require(value >= 0 && value < embedding.values.rows,
                "embed: a value is one of the vocabulary");
  block.require(embedding.position != PositionKind::kTable ||
                    (position >= 0 && position < embedding.positions.rows),
                "embed: a position is one of the table");
}

struct EmbedArgs {
  Rows rows;
  Kept values;
  const Control* control;
  Embedding embedding;
  float* out;
  int64_t out_stride;
  int out_width;
};

struct EmbedKernel {
  using Args = EmbedArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(int64_t inputs) { return {.blocks = inputs, .shared_bytes = 0}; }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int input = static_cast<int>(block.index());
    const int row = row_of(args.rows.first, args.rows.count, input);
    const int32_t slot = args.rows.slot[row];
    float* out = args.out + input * args.out_stride;
    if (slot < 0) {
      block.each([&](int t) {
        for (int c = t; c < args.out_width; c += kThreads) out[c] = 0.0F;
      });
      return;
    }
    const int32_t given = args.values.from[input];
    const int32_t value = given == kNoValue ? args.control[slot].pending : given;
    const int64_t position =
        args.control[slot].position + args.rows.first[0] + input - args.rows.first[row];
    require_known(block, args.embedding, value, position);
    block.each([&](int t) {
      if (t == 0) args.values.keep(input);
      for (int c = t; c < args.out_width; c += kThreads) {
        out[c] = embedded(args.embedding, value, position, c, args.embedding.scale);
      }
    });
  }
};

}  // namespace runnel::cuda
