// AMX: tiles for products of bf16, AVX-512 for everything else. The sums of a tile are those of
// step32_inl.h to the bit, so vectors can do the products with few rows.
#include <immintrin.h>

#include "kernels/cpu/isa.h"

namespace runnel::cpu {
namespace {

#include "kernels/cpu/flush_inl.h"

constexpr int kTileRows = 16;
constexpr int kPanel = 32;            // columns: two tiles side by side
constexpr int kFewestRows = 4;        // with fewer, vectors are faster
constexpr int64_t kTileBytes = 1024;  // of x in one tile
constexpr int64_t kStepBytes = 2048;  // of a panel: 16 words by 32 columns
constexpr int64_t kAhead = 16384;     // prefetch distance in bytes of a panel

// Keeps stores before tile instructions, because the compiler does not know what memory these read.
void stored() { asm volatile("" ::: "memory"); }

// A thread's tiles: 0 to 3 are sums, 4 and 5 rows of x, 6 and 7 weights, as used by one_by_two()
// and two_by_two(). The destructor releases them, because otherwise each thread switch would carry
// 8 KiB.
class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
  ~Tiles() { _tile_release(); }

  // The numbers of rows of the upper and of the lower tiles. The latter may be 0.
  void configure(int upper, int lower) {
    if (upper == upper_ && lower == lower_) return;
    upper_ = upper;
    lower_ = lower;
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    for (const int tile : {0, 1, 4}) config.rows[tile] = static_cast<uint8_t>(upper);
    if (lower > 0) {
      for (const int tile : {2, 3, 5}) config.rows[tile] = static_cast<uint8_t>(lower);
    }
    stored();
    _tile_loadconfig(&config);
  }

 private:
  int upper_ = 0;
  int lower_ = 0;
};

// Rounds x to tiles of bf16, [16 rows][step][row][32 inputs]: 1 KiB that is contiguous for a tile,
// however far apart the rows of x are. Memory after the last row is never read.
void round_to_tiles(const float* x, int64_t x_stride, int rows, int in, std::byte* to) {
  const int steps = steps_of(in);
  for (int row = 0; row < rows; ++row, x += x_stride) {
    std::byte* at = to + row / kTileRows * steps * kTileBytes + row % kTileRows * 64;
    for (int k = 0; k < in; k += kStepInputs, at += kTileBytes) {
      const uint32_t some = in - k >= kStepInputs ? ~0U : (1U << (in - k)) - 1U;
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(some & 0xffffU), x + k);
      const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(some >> 16), x + k + 16);
      _mm512_storeu_si512(at, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

// Where the sums of a block are written: rows of 32 numbers, `bytes` apart.
struct Block {
  float* sums;
  int64_t bytes;
};

// Multiplies two tiles of rows by one panel: 4 loads for 4 products. Sums start from the bias:
// loading a tile with stride 0 puts it in every row. Each step also prefetches `lines` cache lines
// of `next`.
void two_by_two(const std::byte* x, const std::byte* w, int steps, const float* bias, Block to,
                const std::byte* next, int lines) {
  _tile_loadd(0, bias, 0);
  _tile_loadd(1, bias + 16, 0);
  _tile_loadd(2, bias, 0);
  _tile_loadd(3, bias + 16, 0);
  const std::byte* below = x + steps * kTileBytes;
  for (int s = 0; s < steps; ++s, x += kTileBytes, below += kTileBytes, w += kStepBytes) {
    _tile_loadd(4, x, 64);
    _tile_loadd(6, w, 128);
    for (int i = 0; i < lines; ++i, next += 64) _mm_prefetch(next, _MM_HINT_T1);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + 64, 128);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, below, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  float* lower = to.sums + kTileRows * to.bytes / 4;
  _tile_stored(0, to.sums, to.bytes);
  _tile_stored(1, to.sums + 16, to.bytes);
  _tile_stored(2, lower, to.bytes);
  _tile_stored(3, lower + 16, to.bytes);
}

// Multiplies up to 16 rows by one panel: one stream of weights, each read once. Prefetches weights
// up to `end`.
void one_by_two(const std::byte* x, const std::byte* w, int steps, const float* bias, Block to,
                const std::byte* end) {
  _tile_loadd(0, bias, 0);
  _tile_loadd(1, bias + 16, 0);
  for (int s = 0; s < steps; ++s, x += kTileBytes, w += kStepBytes) {
    _tile_loadd(4, x, 64);
    const int lines = end - w > kAhead ? kStepBytes / 64 : 0;
    for (int i = 0; i < lines; ++i) _mm_prefetch(w + kAhead + i * 64, _MM_HINT_T1);
    _tile_loadd(6, w, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + 64, 128);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, to.sums, to.bytes);
  _tile_stored(1, to.sums + 16, to.bytes);
}

// 16 columns of int8 as fp32 numbers. Their lower halves are zeros, so bf16 holds them exactly.
__m512i widen_int8(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

// Widens a panel of int8 to bf16. Prefetches up to `end`.
void widen_panel(const std::byte* from, int steps, const std::byte* end, float* to) {
  for (int pair = 0; pair < steps * kStepInputs / 2; ++pair, from += 2 * kPanel, to += kPanel) {
    if (end - from > kAhead) _mm_prefetch(from + kAhead, _MM_HINT_T1);
    for (int col = 0; col < kPanel; col += 16) {
      const __m512i low = widen_int8(from + col);
      const __m512i high = widen_int8(from + kPanel + col);
      _mm512_storeu_si512(to + col, _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
    }
  }
}

// The epilogue of int8 sums [rows][32]. Each operation is rounded separately.
void scale_sums(const float* scales, const float* bias, int rows, float* sums) {
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < kPanel; col += 16, sums += 16) {
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(sums), _mm512_loadu_ps(scales + col));
      _mm512_storeu_ps(sums, _mm512_add_ps(scaled, _mm512_loadu_ps(bias + col)));
    }
  }
}

// Multiplies by panels of int8 with tiles. Each panel is widened once for all rows.
void matmul_int8_tiles(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  constexpr int kBlock = 2 * kTileRows;
  static constexpr float kZeros[kPanel] = {};
  alignas(64) float sums[kBlock * kPanel];
  const int steps = steps_of(args.in);
  const auto* panels = reinterpret_cast<const std::byte*>(args.panels);
  const std::byte* end = panels + panel_end * steps * kStepBytes / 2;
  const auto* w = reinterpret_cast<const std::byte*>(args.room);
  Tiles tiles;
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    widen_panel(panels + panel * steps * kStepBytes / 2, steps, end, args.room);
    stored();
    const int col = panel * kPanel;
    const int cols = args.out - col < kPanel ? args.out - col : kPanel;
    for (int row = 0; row < rows; row += kBlock) {
      const int count = rows - row < kBlock ? rows - row : kBlock;
      const auto* x =
          reinterpret_cast<const std::byte*>(args.x) + row / kTileRows * steps * kTileBytes;
      if (count > kTileRows) {
        tiles.configure(kTileRows, count - kTileRows);
        two_by_two(x, w, steps, kZeros, {sums, kPanel * 4}, nullptr, 0);
      } else {
        tiles.configure(count, 0);
        one_by_two(x, w, steps, kZeros, {sums, kPanel * 4}, w);
      }
      scale_sums(args.scales + col, args.bias + col, count, sums);
      avx512_kernels().end(args, sums, kPanel, row, col, count, cols);
    }
  }
}

// Computes 32 rows at a time, panel by panel, so that a panel stays in the cache.
void matmul_tiles(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  constexpr int kBlock = 2 * kTileRows;
  alignas(64) float sums[kBlock * kPanel];
  const int steps = steps_of(args.in);
  const int blocks = (rows + kBlock - 1) / kBlock;
  const auto* panels = reinterpret_cast<const std::byte*>(args.panels);
  const std::byte* end = panels + panel_end * steps * kStepBytes;
  const bool plain = args.activation == Activation::kNone && args.times.data == nullptr &&
                     args.plus.data == nullptr;
  Tiles tiles;
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const std::byte* w = panels + panel * steps * kStepBytes;
    const float* bias = args.bias + panel * kPanel;
    const int col = panel * kPanel;
    const int cols = args.out - col < kPanel ? args.out - col : kPanel;
    // The blocks share the prefetch of the next panel.
    const int lines = panel + 1 < panel_end ? static_cast<int>(kStepBytes / 64) / blocks : 0;
    for (int row = 0; row < rows; row += kBlock) {
      const int count = rows - row < kBlock ? rows - row : kBlock;
      const auto* x =
          reinterpret_cast<const std::byte*>(args.x) + row / kTileRows * steps * kTileBytes;
      const bool direct = plain && cols == kPanel;
      const Block to = direct ? Block{args.y + row * args.y_stride + col, args.y_stride * 4}
                              : Block{sums, kPanel * 4};
      if (count > kTileRows) {
        tiles.configure(kTileRows, count - kTileRows);
        const std::byte* next = w + (steps + row / kBlock * steps / blocks) * kStepBytes;
        two_by_two(x, w, steps, bias, to, next, lines);
      } else {
        tiles.configure(count, 0);
        one_by_two(x, w, steps, bias, to, end);
      }
      if (!direct) avx512_kernels().end(args, sums, kPanel, row, col, count, cols);
    }
  }
}

void round_rows(const float* x, int64_t x_stride, int rows, int in, float* to) {
  if (rows < kFewestRows) return avx512_kernels().round_rows(x, x_stride, rows, in, to);
  round_to_tiles(x, x_stride, rows, in, reinterpret_cast<std::byte*>(to));
}

void matmul_rounded(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  if (rows < kFewestRows) {
    return avx512_kernels().matmul_rounded(args, rows, panel_begin, panel_end);
  }
  const FlushDenormals flush;  // for the epilogues: tiles flush anyway
  matmul_tiles(args, rows, panel_begin, panel_end);
}

void matmul_int8(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  if (rows < kFewestRows) {
    return avx512_kernels().matmul_int8(args, rows, panel_begin, panel_end);
  }
  const FlushDenormals flush;
  matmul_int8_tiles(args, rows, panel_begin, panel_end);
}

Kernels with_tiles(Kernels kernels) {
  // Products are so fast that memory limits them, and tasks are so short that one per thread is
  // best.
  kernels.block_rows = kernels.run_inputs = 64;
  kernels.fewest_run_inputs = kernels.fewest_far_inputs = 12;
  kernels.longest_task = 128'000;
  kernels.round_rows = round_rows;
  kernels.matmul_rounded = matmul_rounded;
  kernels.round_int8 = round_rows;
  kernels.matmul_int8 = matmul_int8;
  return kernels;
}

}  // namespace

const Kernels& amx_kernels() {
  static const Kernels kernels = with_tiles(avx512vnni_kernels());
  return kernels;
}

}  // namespace runnel::cpu
