// Chooses the arguments and the kernels of attention. Bits do not depend on any of these choices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/append.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/parts.h"

namespace runnel::cuda {

// Sums of segments that several blocks share take at most this memory.
inline constexpr int64_t kSegmentSumsBytes = int64_t{32} << 20;
// With fewer blocks than this, blocks share the segments of a tile.
inline constexpr int64_t kAttendingBlocks = 512;

// `rows` must be readable by the device.
inline AttendArgs attend_args(Rows rows, const Control* control, const Attention& attention,
                              const AttentionInputs& inputs, const Cache& cache, View out) {
  const auto matrix = [](View view) { return InputMatrix{view.f32(), view.stride}; };
  return {
      .rows = rows,
      .inputs = out.rows,
      .control = control,
      .q = matrix(inputs.q),
      .k = matrix(inputs.k),
      .v = matrix(inputs.v),
      .angles = matrix(attention.angles),
      .rotated = attention.angles.data == nullptr ? 0 : attention.angles.cols,
      .heads = attention.heads,
      .kv_heads = attention.kv_heads,
      .dk = attention.dk,
      .dv = attention.dv,
      .scale = attention.scale,
      .cache = cache,
      .key_bytes = attention.key_bytes(),
      .tiles = 0,
      .shares = 1,
      .segments = static_cast<int>((cache.positions + kSegmentPositions - 1) / kSegmentPositions),
      .sums = nullptr,
      .out = out.f32(),
      .out_stride = out.stride};
}

// How many blocks share the segments of a tile: more than one if there are few tiles.
inline int segment_shares(const AttendArgs& args) {
  const int64_t queries = int64_t{args.inputs} * args.heads;
  if (queries * args.segments * (args.dv + 2) * 4 > kSegmentSumsBytes) return 1;
  const int64_t blocks = std::max<int64_t>(args.tiles * args.kv_heads, 1);
  return static_cast<int>(std::clamp<int64_t>(kAttendingBlocks / blocks, 1, args.segments));
}

// Calls use(Kernel()) with a tile for `queries` queries of each row, if such a tile fits into
// `shared_limit` bytes of shared memory.
template <typename Number, typename Use>
void with_attend_kernel(const AttendArgs& args, int64_t queries, int64_t shared_limit,
                        const Use& use) {
  const auto fits = [&]<typename Kernel>(Kernel) {
    return Kernel::launch(args).shared_bytes <= shared_limit;
  };
  using Large = AttendKernel<Number, 16>;
  using Medium = AttendKernel<Number, 4>;
  if (queries > 4 && fits(Large())) {
    use(Large());
  } else if (queries > 1 && fits(Medium())) {
    use(Medium());
  } else {
    use(AttendKernel<Number, 1>());
  }
}

}  // namespace runnel::cuda
