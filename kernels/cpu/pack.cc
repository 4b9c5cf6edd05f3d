#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/cpu/block_panels.h"
#include "kernels/cpu/quantize.h"

namespace runnel::cpu {
namespace {

// The number of weights that each thread packs before other models that share the threads may step:
// about 10 ms of work. With fewer, a reload on a busy server would wait for many more steps.
constexpr int64_t kWeightsOfAThread = int64_t{2} << 20;

// The number of words of a row that are transposed at a time: four cache lines.
constexpr int64_t kSlice = 64;

int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

// Calls body(panel, thread) for each panel of `width` outputs. `thread` is below the number of
// threads.
template <typename F>
void for_each_panel(const HostTensor& weight, int64_t width, CpuThreads& threads, const F& body) {
  const int all = threads.pool.threads();
  const int64_t panels = divide_up(weight.rows, width);
  const int64_t each = std::max<int64_t>(1, kWeightsOfAThread / (width * weight.cols));
  for (int64_t first = 0; first < panels; first += each * all) {
    const auto count = static_cast<int>(std::min(each * all, panels - first));
    const Places::Hold hold(threads.places, all);
    threads.pool.for_each(count, [&](int task, int thread) { body(first + task, thread); });
  }
}

// The outputs of a panel, without padding.
struct PanelRows {
  int64_t first, count;
};
PanelRows rows_of_panel(const HostTensor& weight, int64_t panel, int width) {
  return {panel * width, std::min<int64_t>(width, weight.rows - panel * width)};
}

// Reads words [word, word + kSlice) of a row, as far as they exist.
void read_words(const HostTensor& weight, int64_t row, int64_t word, bool pairs,
                const Kernels& kernels, float* slice) {
  const int64_t numbers = pairs ? 2 : 1;  // in a word
  const int64_t count = std::min(kSlice * numbers, weight.cols - word * numbers);
  if (count <= 0) return;
  const std::byte* const from = weight.row(row) + word * numbers * element_bytes(weight.type);
  if (pairs && weight.type == DType::kF32) {
    kernels.round_pairs(reinterpret_cast<const float*>(from), static_cast<int>(count), slice);
  } else {
    std::memcpy(slice, from, static_cast<size_t>(count * element_bytes(weight.type)));
  }
}

// `slices` has words of kLanes rows, with zeros for rows that do not exist. Writes word i of all
// these rows to `to + i * stride`, for the first `count` words. The width of a panel is a multiple
// of kLanes.
using Words = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
void transpose(const float (&slices)[kLanes][kSlice], int64_t count, float* to, int64_t stride) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Words row[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) std::memcpy(&row[lane], slices[lane] + i, 16);
    const Words low[2] = {__builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
                          __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5)};
    const Words high[2] = {__builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
                           __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7)};
    const Words column[kLanes] = {__builtin_shufflevector(low[0], low[1], 0, 1, 4, 5),
                                  __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7),
                                  __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5),
                                  __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7)};
    for (int64_t j = 0; j < std::min(kLanes, count - i); ++j) {
      std::memcpy(to + (i + j) * stride, &column[j], 16);
    }
  }
}

// [panel][words][panel width].
void pack_words(const HostTensor& weight, const Kernels& kernels, CpuThreads& threads, Arena& arena,
                Weight& packed) {
  const int64_t width = kernels.panel;
  const bool rounds = packed.precision == Precision::kBf16;
  const bool pairs = rounds || weight.type == DType::kBF16;
  const int64_t words = rounds  ? divide_up(weight.cols, kernels.step) * kernels.step / 2
                        : pairs ? divide_up(weight.cols, 2)
                                : weight.cols;
  const int64_t panels = divide_up(weight.rows, width);
  packed.stored = pairs ? DType::kBF16 : DType::kF32;
  packed.panels = arena.place(panels * words * width * 4);
  for_each_panel(weight, width, threads, [&](int64_t panel, int) {
    const PanelRows rows = rows_of_panel(weight, panel, kernels.panel);
    float* const to = packed.panels.as<float>() + panel * words * width;
    for (int64_t word = 0; word < words; word += kSlice) {
      const int64_t count = std::min(kSlice, words - word);
      for (int64_t lane = 0; lane < rows.count; lane += kLanes) {
        float slices[kLanes][kSlice] = {};
        for (int64_t i = 0; i < std::min(kLanes, rows.count - lane); ++i) {
          read_words(weight, rows.first + lane + i, word, pairs, kernels, slices[i]);
        }
        transpose(slices, count, to + word * width + lane, width);
      }
    }
  });
}

// [panel][inputs, padded to steps][panel width].
void pack_integers(const HostTensor& weight, int width, CpuThreads& threads, Arena& arena,
                   Weight& packed) {
  const int64_t panels = divide_up(weight.rows, width);
  const int64_t padded = divide_up(weight.cols, kStepInputs) * kStepInputs;
  packed.stored = DType::kI8;
  packed.panels = arena.place(panels * padded * width);
  packed.scales = arena.place(panels * width * 4);
  const auto cols = static_cast<size_t>(weight.cols);
  std::vector<float> numbers(cols * threads.pool.threads());  // one row per thread
  std::vector<int8_t> integers(numbers.size());
  for_each_panel(weight, width, threads, [&](int64_t panel, int thread) {
    const PanelRows rows = rows_of_panel(weight, panel, width);
    const std::span<float> row = std::span(numbers).subspan(thread * cols, cols);
    int8_t* const whole = integers.data() + thread * cols;
    for (int64_t lane = 0; lane < rows.count; ++lane) {
      const int64_t out = rows.first + lane;
      for (int k = 0; k < weight.cols; ++k) row[k] = weight.number(out * weight.cols + k);
      packed.scales.as<float>()[out] = quantize(row, whole);
      int8_t* const column = packed.panels.as<int8_t>() + panel * width * padded + lane;
      for (int64_t k = 0; k < weight.cols; ++k) column[k * width] = whole[k];
    }
  });
}

void pack_blocks(const HostTensor& weight, int width, CpuThreads& threads, Arena& arena,
                 Weight& packed) {
  const int64_t panels = divide_up(weight.rows, width);
  const int64_t bytes = block_panel_bytes(weight, width);
  packed.panels = arena.place(panels * bytes);
  for_each_panel(weight, width, threads, [&](int64_t panel, int) {
    pack_block_panel(weight, width, panel, packed.panels.data() + panel * bytes);
  });
}

}  // namespace

Weight pack_panels(const HostTensor& weight, Precision precision, const Kernels& kernels,
                   CpuThreads& threads, Arena& arena) {
  Weight packed;
  packed.precision = precision;
  packed.in = weight.cols;
  packed.out = weight.rows;
  packed.blocks = weight.stored;
  if (precision == Precision::kBlocks) {
    pack_blocks(weight, kernels.panel, threads, arena, packed);
  } else if (precision == Precision::kInt8) {
    pack_integers(weight, kernels.panel, threads, arena, packed);
  } else {
    pack_words(weight, kernels, threads, arena, packed);
  }
  return packed;
}

}  // namespace runnel::cpu
