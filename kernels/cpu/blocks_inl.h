// Products with weights in blocks (docs/decisions/blocks.md). The inputs become integers, the sum
// of a run of 32 products is exact, and the sums of runs are added in ascending order. Included
// inside an anonymous namespace by isa_*.cc, after step32_inl.h. Before that, isa_*.cc defines
// Ints, a vector of kLanes integers, with its operations, and:
// - largest_size(x): the largest bits of |x| of a run's 32 inputs.
// - put_integers(x, factor, words, sums): rounds the 32 numbers x * factor to integers, ties to
//   even. It writes two words for each four of them, in the form that add_products() reads. sums[0]
//   becomes the sum of the first 16 integers, and sums[1] that of the others.
// - kBlockRows: the most rows that are multiplied by a panel while its weights are in registers.
// - kBothHalves: with more rows, the registers have no room for the sums of both halves of a panel.
// No include guard and no includes: see isa.h.
//
// For each row and each run of 32 inputs:
// - m is the largest |x|. If it is below 2^-100, all v and the power are 0. If an x is not finite,
//   all v are 0, and the power is a NaN.
// - Otherwise, with 2^e <= m < 2^(e + 1), v is the integer nearest to x * 2^(13 - e), ties to even,
//   and the power is 2^(e - 13).
// - t = (float(sum of q v) * power) * scale. With a minimum, t = t - (float(sum of v) * power) *
//   minimum. Then c = c + t. Each operation rounds, and denormals count as zero.
// An output is c, which starts from +0, plus its bias.

// make_room_for() (products.cc) reserves kStepInputs words for each run.
static_assert(kRunWords <= kStepInputs);

// Prefetch distance in a panel, in bytes.
constexpr int64_t kBlocksAhead = 2048;
// The most bytes of a panel that stays in the L2 cache together with the next one.
constexpr int64_t kMostAhead = 512 << 10;

inline int32_t bits_of(float x) {
  int32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float number_of(int32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// Converts the inputs of one run.
void round_run(const float* x, int32_t* run) {
  constexpr int32_t kLeast = 27 << 23;   // 2^-100
  constexpr int32_t kNone = 0x7f800000;  // infinity; NaNs are above it
  static constexpr float kZeros[kStepInputs] = {};
  const int32_t most = largest_size(x);
  const bool is_none = most >= kNone || most < kLeast;
  const int32_t exponent = most >> 23;  // e + 127
  const float factor = is_none ? 0.0F : number_of((127 + 13 + 127 - exponent) << 23);
  const float power = most >= kNone   ? number_of(0x7fc00000)
                      : most < kLeast ? 0.0F
                                      : number_of((exponent - 13) << 23);
  int32_t sums[2];
  put_integers(is_none ? kZeros : x, factor, run + kFirstInput, sums);
  const int32_t sum = sums[0] + sums[1];
  run[0] = bits_of(power);
  run[1] = bits_of(static_cast<float>(sum) * power);
  run[2] = -128 * sums[0];
  run[3] = -128 * sums[1];
  run[4] = -128 * sum;
  run[5] = -8 * sum;
}

// Converts x [rows, in] to integers, [rows][runs][kRunWords]. Blocks have whole runs, so `in` is a
// multiple of 32.
void round_blocks(const float* x, int64_t x_stride, int rows, int in, float* to) {
  const FlushDenormals flush;
  auto* run = reinterpret_cast<int32_t*>(to);
  for (int row = 0; row < rows; ++row, x += x_stride) {
    for (int k = 0; k < in; k += kStepInputs, run += kRunWords) {
      round_run(x + k, run);
    }
  }
}

// The scales of a run for one half of a panel.
struct RunScales {
  Reg scale[2], least;
};

template <BlockLayout kLayout>
RUNNEL_INLINE RunScales run_scales(const std::byte* head, const std::byte* words, int run, int j) {
  RunScales scales{{set1(0.0F), set1(0.0F)}, set1(0.0F)};
  if constexpr (kLayout.runs == 1) {
    scales.scale[0] = load_half(words + kLayout.words_bytes(kPanel) + j * kLanes * 2);
  } else {
    constexpr int kScales = kPanel * (kLayout.minimum ? 4 : 2);
    const std::byte* const factors = head + kScales + run * kPanel * kLayout.factors() + j * kLanes;
    const Reg d = load_half(head + j * kLanes * 2);
    scales.scale[0] = mul(d, load_int8(factors));
    if constexpr (kLayout.halves) scales.scale[1] = mul(d, load_int8(factors + kPanel));
    if constexpr (kLayout.minimum) {
      scales.least = mul(load_half(head + (kPanel + j * kLanes) * 2), load_int8(factors + kPanel));
    }
  }
  return scales;
}

// The integers plus the offset, from a layout's nibbles.
template <BlockLayout kLayout>
RUNNEL_INLINE Ints integers_of(Ints nibbles) {
  if constexpr (kLayout.table) return looked_up(nibbles, kIq4NlBytes);
  return nibbles;
}

// Adds one run to the sums of kN rows, for one half of a panel.
template <BlockLayout kLayout, int kN>
RUNNEL_INLINE void add_run(const int32_t* x, int64_t x_stride, const std::byte* words,
                           const RunScales& scales, Reg (&sum)[kN][2], int j) {
  static_assert(kLayout.offset == 0 || kLayout.offset == 8 || kLayout.offset == 128);
  constexpr int kParts = kLayout.halves ? 2 : 1;
  constexpr int kVectors = kLayout.vectors() / kParts;  // of a part
  Reg t[kN];
  const int32_t* rows[kN];
#pragma GCC unroll 8
  for (int i = 0; i < kN; ++i) {
    rows[i] = x + i * x_stride;
    // Without this, the compiler computes all addresses before the loop, and keeps them on the
    // stack.
    asm("" : "+r"(rows[i]));
  }
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    Ints products[kN][2];
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      products[i][0] = products[i][1] = no_ints();
      if constexpr (kLayout.offset != 0) {
        products[i][0] = same_ints(rows[i][offset_word(kLayout, part)]);
      }
    }
#pragma GCC unroll 8
    for (int vector = 0; vector < kVectors; ++vector) {
      const int v = part * kVectors + vector;
      const Ints w = load_ints(words + v * kLanes * 4);
#pragma GCC unroll 8
      for (int i = 0; i < kN; ++i) {
        const int32_t* const run = rows[i] + kFirstInput;
        if constexpr (kLayout.nibbles) {
          add_products(integers_of<kLayout>(lower_nibbles(w)), run + 4 * v, products[i]);
          add_products(integers_of<kLayout>(upper_nibbles(w)), run + 4 * v + 2, products[i]);
        } else {
          add_products(w, run + 2 * v, products[i]);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) {
      const Reg exact = to_numbers(sum_of(products[i]));
      t[i] = flushed(mul(flushed(mul(exact, set1(number_of(rows[i][0])))), scales.scale[part]));
      if constexpr (kLayout.minimum) {
        t[i] = flushed(sub(t[i], flushed(mul(set1(number_of(rows[i][1])), scales.least))));
      }
      sum[i][j] = flushed(add(sum[i][j], t[i]));
    }
  }
}

// Computes kN rows by one panel. Prefetches `next`, or this panel if it is empty. More than
// kBothHalves rows are multiplied by one half of the panel after the other.
template <BlockLayout kLayout, int kN>
void block_tile(const MatmulArgs& args, int row, int panel, Ahead next) {
  constexpr int kPasses = kN > kBothHalves ? 2 : 1;
  const int runs = steps_of(args.in);
  const int64_t stride = int64_t{runs} * kRunWords;
  // Each run prefetches whole lines.
  const bool is_own = next.bytes == 0;
  const int64_t bytes =
      is_own ? kLayout.run_bytes(kPanel) : (next.bytes / (runs * kPasses) + 63) / 64 * 64;
  const std::byte* ahead = next.at;
  Reg sum[kN][2];
#pragma GCC unroll 8
  for (int i = 0; i < kN; ++i) sum[i][0] = sum[i][1] = set1(0.0F);
#pragma GCC unroll 2
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto* x = reinterpret_cast<const int32_t*>(args.x) + row * stride;
    const auto* unit = reinterpret_cast<const std::byte*>(args.panels) +
                       int64_t{panel} * (runs / kLayout.runs) * kLayout.unit_bytes(kPanel);
    for (int run = 0; run < runs; run += kLayout.runs, unit += kLayout.unit_bytes(kPanel)) {
      for (int part = 0; part < kLayout.runs; ++part, x += kRunWords) {
        const std::byte* const words =
            unit + kLayout.head_bytes(kPanel) + part * kLayout.run_bytes(kPanel);
        if (is_own) ahead = words + kBlocksAhead;
        for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
        ahead += bytes;
#pragma GCC unroll 2
        for (int j = pass; j < 2; j += kPasses) {
          add_run<kLayout, kN>(x, stride, words + j * kLayout.words_bytes(kPanel) / 2,
                               run_scales<kLayout>(unit, words, part, j), sum, j);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    const Reg bias = flushed(load(args.bias + int64_t{panel} * kPanel + j * kLanes));
#pragma GCC unroll 8
    for (int i = 0; i < kN; ++i) sum[i][j] = flushed(add(sum[i][j], bias));
  }
  end_sums<kN, 1>(args, sum, row, panel);
}

template <BlockLayout kLayout, int kN>
void block_rows(const MatmulArgs& args, int rows, int row, int panel, Ahead next) {
  if (rows == kN) {
    block_tile<kLayout, kN>(args, row, panel, next);
  } else if constexpr (kN > 1) {
    block_rows<kLayout, kN - 1>(args, rows, row, panel, next);
  }
}

// A separate function, so that the compiler moves no sum out of the scope in which denormals are
// flushed.
template <BlockLayout kLayout>
[[gnu::noinline]] void block_products(const MatmulArgs& args, int rows, int panel_begin,
                                      int panel_end) {
  const int64_t bytes = int64_t{steps_of(args.in) / kLayout.runs} * kLayout.unit_bytes(kPanel);
  const int blocks = (rows + kBlockRows - 1) / kBlockRows;
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const auto* w = reinterpret_cast<const std::byte*>(args.panels) + panel * bytes;
    for (int block = 0; block < blocks; ++block) {
      const int begin = static_cast<int>(int64_t{rows} * block / blocks);
      const int end = static_cast<int>(int64_t{rows} * (block + 1) / blocks);
      const bool is_last = panel + 1 == panel_end;
      // A block that reads the panel twice has time to prefetch the whole next panel.
      const bool takes_next = blocks == 1 && rows > kBothHalves && bytes <= kMostAhead && !is_last;
      const Ahead next =
          takes_next ? Ahead{w + bytes, bytes} : part_of_next(w, bytes, block, blocks, is_last);
      block_rows<kLayout, kBlockRows>(args, end - begin, begin, panel, next);
    }
  }
}

void matmul_blocks(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  const FlushDenormals flush;
  switch (args.blocks) {
    case StoredType::kQ4_0:
      return block_products<kQ4_0Layout>(args, rows, panel_begin, panel_end);
    case StoredType::kIq4Nl:
      return block_products<kIq4NlLayout>(args, rows, panel_begin, panel_end);
    case StoredType::kQ4K:
      return block_products<kQ4KLayout>(args, rows, panel_begin, panel_end);
    case StoredType::kQ5K:
      return block_products<kQ5KLayout>(args, rows, panel_begin, panel_end);
    case StoredType::kQ6K:
      return block_products<kQ6KLayout>(args, rows, panel_begin, panel_end);
    default:
      return block_products<kBytesLayout>(args, rows, panel_begin, panel_end);
  }
}
