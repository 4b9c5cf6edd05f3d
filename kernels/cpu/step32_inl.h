// Products of bf16 in the order of sums that tiles have (isa_amx.cc), by plain multiply-adds.
// Included inside an anonymous namespace by each isa_*.cc, after kernels_inl.h, with load_int8()
// (widened), FlushDenormals, fused() and flushed(): a multiply-add of one rounding, and a number or
// zero where it is a denormal, which for x86 is the machine's own doing while a FlushDenormals
// lives. No include guard and no includes: see isa.h.
//
// An output starts from its bias. For each step of 32 inputs two chains of multiply-adds start from
// zero, one over the 16 even inputs and one over the 16 odd ones, both ascending; then
//     c = c + (even + odd).
// Inputs behind the last one are zeros and take part: they make +0 of a chain that is -0.
//
// With weights of int8, which bf16 holds exactly, it starts from +0 instead and ends as
//     c = c * scale + bias, each rounded by itself.

// Each output has two chains beside its sum.
constexpr int kStepRows = kRows / 2;

// A denormal counts as zero before it is rounded, as the instruction for it has it.
inline Reg rounded_to_bf16(Reg x) {
  const Reg size = max(x, sub(set1(0.0F), x));
  return nearest_bf16(if_above(set1(0x1p-126F), size, mul(x, set1(0.0F)), x));
}

// x [rows, in] rounded to bf16, as fp32 numbers [rows][steps * 32].
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

// How a panel keeps what the next link of both chains takes, kBytes of it: words of two numbers of
// bf16.
struct Pairs {
  static constexpr int kBytes = 4 * kPanel;
  static constexpr int kNumbers = kStepInputs;  // of a row of x in a step
  static constexpr int kPanels = 1;             // at once for a single row
  static constexpr bool kScaled = false;
  // Vector `j` of both.
  static RUNNEL_INLINE void take(const std::byte* w, int j, Reg& low, Reg& high) {
    const Reg pairs = load(reinterpret_cast<const float*>(w) + j * kLanes);
    low = flushed(even(pairs));
    high = flushed(odd(pairs));
  }
  static RUNNEL_INLINE Reg multiply(Reg x, Reg w, Reg sum) { return fused(x, w, sum); }
};

// A row of int8 for the one, and a row for the other.
struct Int8Rows {
  static constexpr int kBytes = 2 * kPanel;
  static constexpr int kNumbers = kStepInputs;
  static constexpr int kPanels = 2;  // they come twice as fast, and chains must not wait
  static constexpr bool kScaled = true;
  static RUNNEL_INLINE void take(const std::byte* w, int j, Reg& low, Reg& high) {
    low = load_int8(w + j * kLanes);
    high = load_int8(w + kPanel + j * kLanes);
  }
  static RUNNEL_INLINE Reg multiply(Reg x, Reg w, Reg sum) { return fused(x, w, sum); }
};

// Bytes of a panel, while it comes from a far cache.
constexpr int64_t kStepAhead = 16384;

// sum += the products of one step of kN rows, `x_stride` numbers apart, and kP panels,
// `panel_bytes` apart.
template <typename Kept, int kN, int kP>
RUNNEL_INLINE void add_step(const float* x, int64_t x_stride, const std::byte* w,
                            int64_t panel_bytes, int64_t ahead, Reg (&sum)[kN][2 * kP]) {
  Reg evens[kN][2 * kP];
  Reg odds[kN][2 * kP];
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < 2 * kP; ++j) evens[i][j] = odds[i][j] = set1(0.0F);
  }
  for (int k = 0; k < Kept::kNumbers; k += 2, w += Kept::kBytes) {
#pragma GCC unroll 8
    for (int j = 0; j < 2 * kP; ++j) {
      const std::byte* at = w + j / 2 * panel_bytes;
      for (int line = j % 2 * 64; line < Kept::kBytes; line += 128) {
        __builtin_prefetch(at + line + ahead);
      }
      Reg low;
      Reg high;
      Kept::take(at, j % 2, low, high);
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) {
        evens[i][j] = Kept::multiply(set1(x[i * x_stride + k]), low, evens[i][j]);
        odds[i][j] = Kept::multiply(set1(x[i * x_stride + k + 1]), high, odds[i][j]);
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < 2 * kP; ++j) {
      sum[i][j] = flushed(add(sum[i][j], flushed(add(evens[i][j], odds[i][j]))));
    }
  }
}

// kN rows by kP panels; more is asked for up to `end`, where this thread's panels do.
template <typename Kept, int kN, int kP>
void step_tile(const MatmulArgs& args, int row, int panel, const std::byte* end) {
  constexpr int64_t kStepBytes = int64_t{Kept::kNumbers / 2} * Kept::kBytes;
  const int steps = steps_of(args.in);
  const int64_t stride = int64_t{steps} * Kept::kNumbers;
  const float* x = args.x + row * stride;
  const int64_t panel_bytes = steps * kStepBytes;
  const auto* w = reinterpret_cast<const std::byte*>(args.panels) + panel * panel_bytes;
  Reg bias[2 * kP];
  Reg sum[kN][2 * kP];
#pragma GCC unroll 8
  for (int j = 0; j < 2 * kP; ++j) {
    bias[j] = flushed(load(args.bias + int64_t{panel} * kPanel + j * kLanes));
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) sum[i][j] = Kept::kScaled ? set1(0.0F) : bias[j];
  }
  for (int step = 0; step < steps; ++step, x += Kept::kNumbers, w += kStepBytes) {
    const int64_t left = end - w - (kP - 1) * panel_bytes;
    add_step<Kept, kN, kP>(x, stride, w, panel_bytes, left > kStepAhead ? kStepAhead : 0, sum);
  }
  if constexpr (Kept::kScaled) {
#pragma GCC unroll 8
    for (int j = 0; j < 2 * kP; ++j) {
      const Reg scale = load(args.scales + int64_t{panel} * kPanel + j * kLanes);
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) {
        sum[i][j] = flushed(add(flushed(mul(sum[i][j], scale)), bias[j]));
      }
    }
  }
  end_sums<kN, kP>(args, sum, row, panel);
}

template <typename Kept, int kN>
void step_panels(const MatmulArgs& args, int rows, int row, int begin, int end,
                 const std::byte* last) {
  if (rows == kN) {
    constexpr int kP = kN == 1 ? Kept::kPanels : 1;
    for (; begin + kP <= end; begin += kP) step_tile<Kept, kN, kP>(args, row, begin, last);
    for (; begin < end; ++begin) step_tile<Kept, kN, 1>(args, row, begin, last);
  } else if constexpr (kN > 1) {
    step_panels<Kept, kN - 1>(args, rows, row, begin, end, last);
  }
}

// A function of its own, so that no sum moves out of where denormals are flushed.
template <typename Kept>
[[gnu::noinline]] void step_products(const MatmulArgs& args, int rows, int panel_begin,
                                     int panel_end) {
  const auto* last = reinterpret_cast<const std::byte*>(args.panels) +
                     int64_t{panel_end} * steps_of(args.in) * (Kept::kNumbers / 2) * Kept::kBytes;
  const int blocks = (rows + kStepRows - 1) / kStepRows;
  const int at_once = blocks == 1 ? panel_end - panel_begin : 1;  // as in matmul()
  for (int panel = panel_begin; panel < panel_end; panel += at_once) {
    for (int block = 0; block < blocks; ++block) {
      const int begin = static_cast<int>(int64_t{rows} * block / blocks);
      const int end = static_cast<int>(int64_t{rows} * (block + 1) / blocks);
      step_panels<Kept, kStepRows>(args, end - begin, begin, panel, panel + at_once, last);
    }
  }
}

template <typename Kept>
void matmul_steps(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  const FlushDenormals flush;
  step_products<Kept>(args, rows, panel_begin, panel_end);
}
