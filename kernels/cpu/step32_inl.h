// Products of bf16 with plain multiply-adds, in the order in which AMX tiles add (isa_amx.cc).
// Included inside an anonymous namespace by each isa_*.cc, after kernels_inl.h. Before that,
// isa_*.cc defines:
// - kStepRows, the most rows that are multiplied together. In the inner loop, each needs registers
//   for two chains of two vectors;
// - load_int8(), which widens;
// - fused(), a multiply-add that rounds once;
// - FlushDenormals, and flushed(x), which is 0 if x is a denormal. On x86 the processor flushes
//   while a FlushDenormals exists.
// No include guard and no includes: see isa.h.
//
// An output starts from its bias. For each step of 32 inputs, two chains of multiply-adds start
// from zero, one over the 16 even inputs and one over the 16 odd ones, both ascending; then c = c +
// (even + odd). Inputs after the last one are zeros and take part: they turn a chain of -0 into +0.
//
// With weights of int8, which bf16 represents exactly, an output starts from +0 instead, and ends
// as c = c * scale + bias, where both operations round.

// Rounds to bf16. A denormal counts as zero before it is rounded, as in the processor's
// instruction.
inline Reg rounded_to_bf16(Reg x) {
  const Reg size = max(x, sub(set1(0.0F), x));
  return nearest_bf16(if_above(set1(0x1p-126F), size, mul(x, set1(0.0F)), x));
}

// Rounds x [rows, in] to bf16, as fp32 numbers [rows][steps * 32].
void round_steps(const float* x, int64_t x_stride, int rows, int in, float* to) {
  const int padded = steps_of(in) * kStepInputs;
  for (int row = 0; row < rows; ++row, x += x_stride, to += padded) {
    int i = 0;
    for (; i + kLanes <= in; i += kLanes) store(to + i, rounded_to_bf16(load(x + i)));
    for (; i < padded; i += kLanes) {
      store(to + i, i < in ? rounded_to_bf16(load_n(x + i, in - i)) : set1(0.0F));
    }
  }
}

// How a panel stores the weights of the next multiply-add of both chains (kBytes bytes). Here:
// words of two bf16 numbers.
struct Pairs {
  static constexpr int kBytes = 4 * kPanel;
  static constexpr int kNumbers = kStepInputs;  // the numbers of a row of x in a step
  static constexpr bool kScaled = false;
  // Loads vector `j` of a chain: 0 for the even inputs, 1 for the odd ones.
  static RUNNEL_INLINE Reg take(const std::byte* w, int chain, int j) {
    const Reg pairs = load(reinterpret_cast<const float*>(w) + j * kLanes);
    return flushed(chain == 0 ? even(pairs) : odd(pairs));
  }
  static RUNNEL_INLINE Reg multiply(Reg x, Reg w, Reg sum) { return fused(x, w, sum); }
};

// A row of int8 for each chain.
struct Int8Rows {
  static constexpr int kBytes = 2 * kPanel;
  static constexpr int kNumbers = kStepInputs;
  static constexpr bool kScaled = true;
  static RUNNEL_INLINE Reg take(const std::byte* w, int chain, int j) {
    return load_int8(w + chain * kPanel + j * kLanes);
  }
  static RUNNEL_INLINE Reg multiply(Reg x, Reg w, Reg sum) { return fused(x, w, sum); }
};

// Prefetch distances in a panel, in bytes: from the L2 cache to the L1 cache, and from memory to
// the L2 cache.
constexpr int64_t kStepNear = 1024;
constexpr int64_t kStepAhead = 8192;

// Adds the products of one step of a panel to the sums of kN rows, which are `x_stride` numbers
// apart. With each two inputs it prefetches from `ahead`, which advances by `advance` bytes.
template <typename Kept, int kN>
RUNNEL_INLINE void add_step(const float* x, int64_t x_stride, const std::byte* w,
                            const std::byte* ahead, int64_t advance, Reg (&sum)[kN][2]) {
  Reg chains[2][kN][2];
#pragma GCC unroll 2
  for (int chain = 0; chain < 2; ++chain) {
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) chains[chain][i][0] = chains[chain][i][1] = set1(0.0F);
  }
  for (int k = 0; k < Kept::kNumbers; k += 2, w += Kept::kBytes, ahead += advance) {
    for (int line = 0; line < Kept::kBytes; line += 64) {
      __builtin_prefetch(ahead + line, 0, 2);
      __builtin_prefetch(w + line + kStepNear);
    }
    // One chain after the other. With the weights of both chains at once, AVX2 would not have
    // enough registers, and sums would be stored on the stack.
#pragma GCC unroll 2
    for (int chain = 0; chain < 2; ++chain) {
      const Reg column[2] = {Kept::take(w, chain, 0), Kept::take(w, chain, 1)};
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) {
        const Reg value = set1(x[i * x_stride + k + chain]);
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          chains[chain][i][j] = Kept::multiply(value, column[j], chains[chain][i][j]);
        }
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      sum[i][j] = flushed(add(sum[i][j], flushed(add(chains[0][i][j], chains[1][i][j]))));
    }
  }
}

// Computes kN rows by one panel, because memory is read faster as one stream than as two.
// Prefetches `next`, or this panel if it is empty.
template <typename Kept, int kN>
void step_tile(const MatmulArgs& args, int row, int panel, Ahead next) {
  constexpr int64_t kStepBytes = int64_t{Kept::kNumbers / 2} * Kept::kBytes;
  const int steps = steps_of(args.in);
  const int64_t stride = int64_t{steps} * Kept::kNumbers;
  const float* x = args.x + row * stride;
  const auto* w = reinterpret_cast<const std::byte*>(args.panels) + panel * steps * kStepBytes;
  Reg bias[2];
  Reg sum[kN][2];
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    bias[j] = flushed(load(args.bias + int64_t{panel} * kPanel + j * kLanes));
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) sum[i][j] = Kept::kScaled ? set1(0.0F) : bias[j];
  }
  const bool is_own = next.bytes == 0;
  const std::byte* ahead = is_own ? w + kStepAhead : next.at;
  const int64_t advance = is_own ? Kept::kBytes : 2 * next.bytes / stride;
  for (int step = 0; step < steps; ++step, x += Kept::kNumbers, w += kStepBytes) {
    add_step<Kept, kN>(x, stride, w, ahead, advance, sum);
    ahead += advance * Kept::kNumbers / 2;
  }
  if constexpr (Kept::kScaled) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const Reg scale = load(args.scales + int64_t{panel} * kPanel + j * kLanes);
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) {
        sum[i][j] = flushed(add(flushed(mul(sum[i][j], scale)), bias[j]));
      }
    }
  }
  end_sums<kN, 1>(args, sum, row, panel);
}

template <typename Kept, int kN>
void step_rows(const MatmulArgs& args, int rows, int row, int panel, Ahead next) {
  if (rows == kN) {
    step_tile<Kept, kN>(args, row, panel, next);
  } else if constexpr (kN > 1) {
    step_rows<Kept, kN - 1>(args, rows, row, panel, next);
  }
}

// A separate function, so that the compiler moves no sum out of the scope in which denormals are
// flushed.
template <typename Kept>
[[gnu::noinline]] void step_products(const MatmulArgs& args, int rows, int panel_begin,
                                     int panel_end) {
  const int64_t bytes = int64_t{steps_of(args.in)} * (Kept::kNumbers / 2) * Kept::kBytes;
  const int blocks = (rows + kStepRows - 1) / kStepRows;
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const auto* w = reinterpret_cast<const std::byte*>(args.panels) + panel * bytes;
    for (int block = 0; block < blocks; ++block) {
      const int begin = static_cast<int>(int64_t{rows} * block / blocks);
      const int end = static_cast<int>(int64_t{rows} * (block + 1) / blocks);
      const Ahead next = part_of_next(w, bytes, block, blocks, panel + 1 == panel_end);
      step_rows<Kept, kStepRows>(args, end - begin, begin, panel, next);
    }
  }
}

template <typename Kept>
void matmul_steps(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  const FlushDenormals flush;
  step_products<Kept>(args, rows, panel_begin, panel_end);
}
