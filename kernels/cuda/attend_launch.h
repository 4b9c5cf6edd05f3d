// Chooses the arguments and the kernels of attention. Bits do not depend on any of these choices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "kernels/backend.h"
#include "kernels/cuda/append.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/parts.h"

namespace runnel::cuda {

// The maximum memory for sums of segments that several blocks share.
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

// Memory for kSegmentSumsBytes of sums.
class SegmentSums {
 public:
  // The memory, which the first call allocates; null if that failed.
  template <typename Device>
  float* on(Device& device) {
    if (!is_asked_for_) {
      is_asked_for_ = true;
      try {
        memory_ = device.allocate(kSegmentSumsBytes, Memory::kDevice);
      } catch (const std::bad_alloc&) {  // all bits are the same without it
      }
    }
    return memory_.as<float>();
  }

 private:
  Buffer memory_;
  bool is_asked_for_ = false;
};

// The limits of a tile's size: the maximum inputs of a row, and the bytes of shared memory that a
// block can have.
struct AttendRoom {
  int longest;
  int64_t shared_limit;
};

// Calls use(Kernel()) for the kernel with the smallest tile for all queries of a row. A kernel
// for which there is not enough shared memory is not used.
template <typename Number, typename Use>
void with_attend_kernel(const AttendArgs& args, const AttendRoom& room, const Use& use) {
  const int64_t queries = int64_t{room.longest} * args.group();
  const auto fits = [&]<typename Kernel>(Kernel) {
    return Kernel::launch(args).shared_bytes <= room.shared_limit;
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

// Calls use(Kernel(), args) for each kernel of an attention, in order. `sums()`: the memory for
// sums of segments, or null.
template <typename Number, typename Sums, typename Use>
void launch_attention(AttendArgs args, const AttendRoom& room, const Sums& sums, const Use& use) {
  use(AppendKernel<Number>(), args);
  with_attend_kernel<Number>(args, room, [&]<typename Kernel>(Kernel) {
    args.tiles = Kernel::tiles(args, room.longest);
    args.shares = segment_shares(args);
    if (args.shares > 1) args.sums = sums();
    if (args.sums == nullptr) args.shares = 1;
    use(Kernel(), args);
  });
  if (args.shares > 1) use(JoinKernel(), args);
}

}  // namespace runnel::cuda
