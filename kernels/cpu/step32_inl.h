// Products of bf16 in the order of sums that tiles have (isa_amx.cc), by plain multiply-adds.
// Included inside an anonymous namespace by each isa_*.cc, after kernels_inl.h, with
// FlushDenormals, fused() and flushed(): a multiply-add of one rounding, and a number or zero where
// it is a denormal, which for x86 is the machine's own doing while a FlushDenormals lives. No
// include guard and no includes: see isa.h.
//
// An output starts from its bias. For each step of 32 inputs two chains of multiply-adds start from
// zero, one over the 16 even inputs and one over the 16 odd ones, both ascending; then
//     c = c + (even + odd).
// Inputs behind the last one are zeros and take part: they make +0 of a chain that is -0.

// Each output has two chains beside its sum.
constexpr int kStepRows = kRows / 2;

constexpr int kStep = kStepInputs;

// A denormal counts as zero before it is rounded, as the instruction for it has it.
inline Reg rounded_to_bf16(Reg x) {
  const Reg size = max(x, sub(set1(0.0F), x));
  return nearest_bf16(if_above(set1(0x1p-126F), size, mul(x, set1(0.0F)), x));
}

// x [rows, in] rounded to bf16, as fp32 numbers [rows][steps * 32].
void round_rows(const float* x, int64_t x_stride, int rows, int in, float* to) {
  const int padded = steps_of(in) * kStepInputs;
  for (int row = 0; row < rows; ++row, x += x_stride, to += padded) {
    int i = 0;
    for (; i + kLanes <= in; i += kLanes) store(to + i, rounded_to_bf16(load(x + i)));
    for (; i < padded; i += kLanes) {
      store(to + i, i < in ? rounded_to_bf16(load_n(x + i, in - i)) : set1(0.0F));
    }
  }
}

// sum += the products of one step of kN rows, `x_stride` numbers apart, and a panel.
template <int kN>
RUNNEL_INLINE void add_step(const float* x, int64_t x_stride, const float* w, int64_t ahead,
                            Reg (&sum)[kN][2]) {
  Reg evens[kN][2];
  Reg odds[kN][2];
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
    evens[i][0] = evens[i][1] = odds[i][0] = odds[i][1] = set1(0.0F);
  }
  for (int k = 0; k < kStepInputs; k += 2, w += kPanel) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const Reg pairs = load(w + j * kLanes);
      __builtin_prefetch(w + j * kLanes + ahead);
      const Reg low = flushed(even(pairs));
      const Reg high = flushed(odd(pairs));
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) {
        evens[i][j] = fused(set1(x[i * x_stride + k]), low, evens[i][j]);
        odds[i][j] = fused(set1(x[i * x_stride + k + 1]), high, odds[i][j]);
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      sum[i][j] = flushed(add(sum[i][j], flushed(add(evens[i][j], odds[i][j]))));
    }
  }
}

// kN rows by one panel; more is asked for up to `end`, where this thread's panels do.
template <int kN>
void step_tile(const MatmulArgs& args, int row, int panel, const float* end) {
  const int steps = steps_of(args.in);
  const int64_t stride = int64_t{steps} * kStepInputs;
  const float* x = args.x + row * stride;
  const float* w = args.panels + panel * (stride / 2) * kPanel;
  Reg sum[kN][2];
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    const Reg bias = flushed(load(args.bias + int64_t{panel} * kPanel + j * kLanes));
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) sum[i][j] = bias;
  }
  constexpr int64_t kStepWords = int64_t{kStepInputs / 2} * kPanel;
  for (int step = 0; step < steps; ++step, x += kStepInputs, w += kStepWords) {
    add_step<kN>(x, stride, w, end - w > 2 * kAhead ? 2 * kAhead : 0, sum);
  }
  end_sums<kN, 1>(args, sum, row, panel);
}

template <int kN>
void step_panels(const MatmulArgs& args, int rows, int row, int begin, int end, const float* last) {
  if (rows == kN) {
    for (int panel = begin; panel < end; ++panel) step_tile<kN>(args, row, panel, last);
  } else if constexpr (kN > 1) {
    step_panels<kN - 1>(args, rows, row, begin, end, last);
  }
}

// A function of its own, so that no sum moves out of where denormals are flushed.
[[gnu::noinline]] void step_products(const MatmulArgs& args, int rows, int panel_begin,
                                     int panel_end) {
  const float* last =
      args.panels + int64_t{panel_end} * steps_of(args.in) * (kStepInputs / 2) * kPanel;
  const int blocks = (rows + kStepRows - 1) / kStepRows;
  const int at_once = blocks == 1 ? panel_end - panel_begin : 1;  // as in matmul()
  for (int panel = panel_begin; panel < panel_end; panel += at_once) {
    for (int block = 0; block < blocks; ++block) {
      const int begin = static_cast<int>(int64_t{rows} * block / blocks);
      const int end = static_cast<int>(int64_t{rows} * (block + 1) / blocks);
      step_panels<kStepRows>(args, end - begin, begin, panel, panel + at_once, last);
    }
  }
}

void matmul_rounded(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  const FlushDenormals flush;
  step_products(args, rows, panel_begin, panel_end);
}
