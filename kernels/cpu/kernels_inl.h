// The operations, written once over a vector register. Each isa_*.cc includes this file inside an
// anonymous namespace. Before that it includes elementary_inl.h and features_inl.h, and defines:
// - Reg, kLanes, kRows, kAccumulators;
// - kKeepsPairs, whether there are enough registers for the sums and for the pairs of all panels;
// - set1, load, store, load_n, store_n, first (the first n lanes, zero elsewhere);
// - add, sub, mul, div, sqrt, max, min, multiply_add(a, b, c) = a * b + c;
// - hold(x), which makes the compiler keep x in a register instead of loading it from memory for
//   each use. It does nothing if there are not enough registers;
// - if_above, scale_by_power, negate_if_odd, even and odd (of pairs of bf16, widened);
// - dot_pairs, if it uses Factors::kPairs.
// No include guard and no includes: see isa.h.
//
// Everything that decides bits is here: which lane adds which element, and in which order. None of
// it depends on the number of rows.

constexpr int kPanel = 2 * kLanes;

// ---- of the head --------------------------------------------------------------------------------

// out[i] = exp(min((x[i] - shift) * scale, 0)).
void exp_scaled(const float* x, int count, float shift, float scale, float* out) {
  const Reg shifts = set1(shift);
  const Reg scales = set1(scale);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(out + i, exp_nonpositive(mul(sub(load(x + i), shifts), scales)));
  }
  if (i < count) {
    const Reg last = mul(sub(load_n(x + i, count - i), shifts), scales);
    store_n(out + i, exp_nonpositive(last), count - i);
  }
}

// out = x clamped to [-1e30, 1e30]; returns the largest element. A NaN becomes -1e30, because max()
// returns its second argument if the first is a NaN.
float make_finite(const float* x, int count, float* out) {
  const Reg least = set1(-1e30F);
  const Reg most = set1(1e30F);
  Reg largest = least;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Reg value = min(max(load(x + i), least), most);
    store(out + i, value);
    largest = max(value, largest);
  }
  float lane[kLanes];
  store(lane, largest);
  for (int j = 1; j < kLanes; ++j) lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
  for (; i < count; ++i) {
    const float value = !(x[i] > -1e30F) ? -1e30F : x[i] < 1e30F ? x[i] : 1e30F;
    out[i] = value;
    lane[0] = value > lane[0] ? value : lane[0];
  }
  return lane[0];
}

// ---- matmul -------------------------------------------------------------------------------------

// Applies activation, factor and residual to a tile's sums [rows][width], which are still in the L1
// cache, and stores the result.
inline void end_tile(const MatmulArgs& args, const float* sums, int width, int row, int col,
                     int rows, int cols) {
  for (int64_t i = row; i < row + rows; ++i, sums += width) {
    const float* times = args.times.data == nullptr ? nullptr : row_of(args.times, i) + col;
    const float* plus = args.plus.data == nullptr ? nullptr : row_of(args.plus, i) + col;
    float* y = args.y + i * args.y_stride + col;
    each_vector(cols, [&](int j, int n) {
      Reg value = activate(args.activation, load_up_to(sums + j, n));
      if (times != nullptr) value = mul(value, load_up_to(times + j, n));
      if (plus != nullptr) value = add(value, load_up_to(plus + j, n));
      store_up_to(y + j, value, n);
    });
  }
}

// Whether the sums are stored unchanged or after relu, with no other activation, factor or
// residual.
inline bool ends_in_registers(const MatmulArgs& args) {
  return args.activation <= Activation::kRelu && args.times.data == nullptr &&
         args.plus.data == nullptr;
}

// The prefetch distance of panels: the number of words that a tile reads while a cache line arrives
// from the L3 cache. It is not used for a single row, which is limited by memory; there the
// hardware prefetcher is better.
constexpr int kAhead = 2048;  // in words, over all panels that a tile reads together

// Memory that a tile prefetches while it computes: `bytes` bytes from `at`, one after the other.
struct Ahead {
  const std::byte* at;
  int64_t bytes;
};

// The memory to prefetch while block `block` of `blocks` blocks of rows multiplies a panel. Only
// the first block reads the panel from memory, so each prefetches a part of the next panel, which
// stays in the L2 cache. Empty for a single block, and if there is no next panel.
inline Ahead part_of_next(const std::byte* panel, int64_t panel_bytes, int block, int blocks,
                          bool is_last) {
  if (blocks == 1 || is_last) return {panel, 0};
  return {panel + panel_bytes + panel_bytes / blocks * block, panel_bytes / blocks};
}

// How a word of a panel is multiplied:
// - kFp32: the word is a number of fp32, and is multiplied with one input;
// - kWidened: the word is a pair. Each half is widened, and multiplied with one input;
// - kPairs: the word is a pair, and is multiplied with a pair of inputs.
enum class Factors { kFp32, kWidened, kPairs };

// sum += x * column for kN rows and kColumns vectors, from vector `first` of the sums on.
template <bool kPairs, int kN, int kColumns, int kSums>
RUNNEL_INLINE void multiply(const float* x, int64_t x_stride, const Reg (&column)[kColumns],
                            Reg (&sum)[kN][kSums], int first = 0) {
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
    const Reg value = set1(x[i * x_stride]);
#pragma GCC unroll 32
    for (int j = 0; j < kColumns; ++j) {
      Reg& to = sum[i][first + j];
      if constexpr (kPairs) {
        to = dot_pairs(value, column[j], to);
      } else {
        to = multiply_add(value, column[j], to);
      }
    }
  }
}

// Multiplies the pairs of kP panels, which were loaded from w: the first numbers of the pairs with
// the input at x, then, if `second` is true, the second numbers with the next input.
template <int kN, int kP>
RUNNEL_INLINE void multiply_widened(const float* x, int64_t x_stride, bool second,
                                    const Reg (&pairs)[2 * kP], const float* w, int64_t panel_size,
                                    Reg (&sum)[kN][2 * kP]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, ++x) {
    if (half == 1 && !second) return;
    // Without this, the compiler computes the rows' second addresses, for which it has no
    // registers.
    asm("" : "+r"(x));
#pragma GCC unroll 4
    for (int p = 0; p < kP; ++p) {
      // Makes the compiler load the pairs and the inputs of each panel again, instead of keeping
      // them on the stack.
      if (!kKeepsPairs) asm("" : "+r"(x), "+r"(w));
      Reg column[2];
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Reg from = kKeepsPairs ? pairs[2 * p + j] : load(w + p * panel_size + j * kLanes);
        column[j] = half == 0 ? even(from) : odd(from);
      }
      multiply<false>(x, x_stride, column, sum, 2 * p);
    }
  }
}

// Adds all products of kN rows and kP panels, in ascending order of words. Prefetches `next`, or
// these panels if it is empty.
template <Factors kFactors, int kN, int kP>
RUNNEL_INLINE void add_products(const MatmulArgs& args, const float* x, const float* w, Ahead next,
                                Reg (&sum)[kN][2 * kP]) {
  const int64_t words = kFactors == Factors::kFp32 ? args.in : (args.in + 1) / 2;
  const int64_t panel_size = words * kPanel;
  // Near the end of a panel, the prefetch reaches into the next tile's panel, kP panels later.
  constexpr int64_t kNear = kAhead / kP;
  const int64_t turn = words - kNear / kPanel;
  const int64_t step = next.bytes / words;
  for (int64_t k = 0; k < words; ++k, w += kPanel) {
    Reg column[2 * kP];
    const int64_t ahead = k < turn ? kNear : kNear + (kP - 1) * panel_size;
#pragma GCC unroll 32
    for (int j = 0; j < 2 * kP; ++j) {
      const float* at = w + (j / 2) * panel_size + (j % 2) * kLanes;
      column[j] = load(at);
      if constexpr (kN > 1) hold(column[j]);
      if constexpr (kN > 1 && kP > 1) __builtin_prefetch(at + ahead);
    }
    if constexpr (kN > 1 && kP == 1) {
      const std::byte* at =
          next.bytes == 0 ? reinterpret_cast<const std::byte*>(w + kAhead) : next.at + k * step;
      for (int line = 0; line < kPanel * 4; line += 64) __builtin_prefetch(at + line, 0, 2);
    }
    if constexpr (kFactors == Factors::kWidened) {
      multiply_widened<kN, kP>(x + 2 * k, args.x_stride, 2 * k + 1 < args.in, column, w, panel_size,
                               sum);
    } else {
      multiply<kFactors == Factors::kPairs>(x + k, args.x_stride, column, sum);
    }
  }
}

// y = sum, or relu(sum) if relu is requested.
template <int kN, int kColumns>
RUNNEL_INLINE void store_tile(const MatmulArgs& args, Reg (&sum)[kN][kColumns], int row, int col,
                              int cols) {
  if (args.activation == Activation::kRelu) {
#pragma GCC unroll 32
    for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) sum[i][j] = max(set1(0.0F), sum[i][j]);
    }
  }
  float* y = args.y + row * args.y_stride + col;
#pragma GCC unroll 32
  for (int j = 0; j < kColumns; ++j) {
    const int left = cols - j * kLanes;
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) {
      float* to = y + i * args.y_stride + j * kLanes;
      if (left >= kLanes) {
        store(to, sum[i][j]);
      } else if (left > 0) {
        store_n(to, sum[i][j], left);
      }
    }
  }
}

// Applies activation, factor and residual to the sums of kN rows and kP panels, and stores them.
template <int kN, int kP>
RUNNEL_INLINE void end_sums(const MatmulArgs& args, Reg (&sum)[kN][2 * kP], int row, int panel) {
  const int col = panel * kPanel;
  const int cols = args.out - col < kP * kPanel ? args.out - col : kP * kPanel;
  if (!ends_in_registers(args)) {
    float sums[kN * kP * kPanel];
#pragma GCC unroll 32
    for (int j = 0; j < 2 * kP; ++j) {
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) store(sums + i * kP * kPanel + j * kLanes, sum[i][j]);
    }
    end_tile(args, sums, kP * kPanel, row, col, kN, cols);
    return;
  }
  store_tile(args, sum, row, col, cols);
}

// kN rows by kP panels in registers. Each output element is one accumulator, which starts from the
// bias and adds one product after the other. All products have this order of sums, except those
// of step32_inl.h and blocks_inl.h.
template <Factors kFactors, int kN, int kP>
void tile(const MatmulArgs& args, int row, int panel, Ahead next) {
  const int64_t words = kFactors == Factors::kFp32 ? args.in : (args.in + 1) / 2;
  Reg sum[kN][2 * kP];
#pragma GCC unroll 32
  for (int j = 0; j < 2 * kP; ++j) {
    const Reg bias = load(args.bias + int64_t{panel} * kPanel + j * kLanes);
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) sum[i][j] = bias;
  }
  add_products<kFactors, kN, kP>(args, args.x + row * args.x_stride,
                                 args.panels + panel * words * kPanel, next, sum);
  end_sums<kN, kP>(args, sum, row, panel);
}

// Computes panels [begin, end) for kN rows: kP panels at once, and the rest with fewer. If there
// are few rows, a tile needs several panels, or each multiply-add would wait for the one before it.
template <Factors kFactors, int kN, int kP>
void panels(const MatmulArgs& args, int row, int begin, int end, Ahead next) {
  for (; begin + kP <= end; begin += kP) tile<kFactors, kN, kP>(args, row, begin, next);
  if constexpr (kP > 1) panels<kFactors, kN, kP / 2>(args, row, begin, end, next);
}

constexpr int panels_at_once(int rows) {
  for (int count = 4; count > 1; count /= 2) {
    if (2 * rows * count <= kAccumulators) return count;
  }
  return 1;
}

template <Factors kFactors, int kN>
void rows_by_panels(const MatmulArgs& args, int rows, int row, int begin, int end, Ahead next) {
  if (rows == kN) {
    panels<kFactors, kN, panels_at_once(kN)>(args, row, begin, end, next);
  } else if constexpr (kN > 1) {
    rows_by_panels<kFactors, kN - 1>(args, rows, row, begin, end, next);
  }
}

template <Factors kFactors>
void matmul(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  const int64_t words = kFactors == Factors::kFp32 ? args.in : (args.in + 1) / 2;
  const int64_t bytes = words * kPanel * 4;
  const auto* w = reinterpret_cast<const std::byte*>(args.panels);
  const int blocks = (rows + kRows - 1) / kRows;
  // A single block of rows computes all panels at once. Several blocks all compute one panel while
  // it is in the cache, and then the next panel.
  const int step = blocks == 1 ? panel_end - panel_begin : 1;
  for (int panel = panel_begin; panel < panel_end; panel += step) {
    for (int block = 0; block < blocks; ++block) {
      const int begin = static_cast<int>(int64_t{rows} * block / blocks);
      const int end = static_cast<int>(int64_t{rows} * (block + 1) / blocks);
      const Ahead next =
          part_of_next(w + panel * bytes, bytes, block, blocks, panel + 1 == panel_end);
      rows_by_panels<kFactors, kRows>(args, end - begin, begin, panel, panel + step, next);
    }
  }
}

// ---- norm ---------------------------------------------------------------------------------------

// out = x + residual; returns the sum.
inline float add_residual(const float* x, const float* residual, float* out, int width) {
  Reg sum = set1(0.0F);
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Reg value = residual == nullptr ? load(x + i) : add(load(x + i), load(residual + i));
    store(out + i, value);
    sum = add(sum, value);
  }
  if (const int left = width - i; left > 0) {
    const Reg more = residual == nullptr ? set1(0.0F) : load_n(residual + i, left);
    const Reg value = add(load_n(x + i, left), more);
    store_n(out + i, value, left);
    sum = add(sum, value);
  }
  return sum_lanes(sum);
}

inline float squared_deviations(const float* x, float mean, int width) {
  const Reg means = set1(mean);
  Reg sum = set1(0.0F);
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Reg deviation = sub(load(x + i), means);
    sum = multiply_add(deviation, deviation, sum);
  }
  if (const int left = width - i; left > 0) {
    const Reg deviation = first(sub(load_n(x + i, left), means), left);
    sum = multiply_add(deviation, deviation, sum);
  }
  return sum_lanes(sum);
}

// out = x times the gate; returns the sum.
inline float multiply_gate(const float* x, const float* gate, Activation with, float* out,
                           int width) {
  Reg sum = set1(0.0F);
  each_vector(width, [&](int i, int n) {
    const Reg by = activate(with, load_up_to(gate + i, n));
    const Reg value = mul(load_up_to(x + i, n), by);
    store_up_to(out + i, value, n);
    sum = add(sum, first_up_to(value, n));
  });
  return sum_lanes(sum);
}

// out = (out - mean) inverse scale + shift.
inline void normalize(const float* scale, const float* shift, float mean, Reg inverse, float* out,
                      int width) {
  const Reg means = set1(mean);
  each_vector(width, [&](int i, int n) {
    const Reg value = mul(sub(load_up_to(out + i, n), means), inverse);
    const Reg by = load_up_to(scale + i, n);
    store_up_to(
        out + i,
        shift == nullptr ? mul(value, by) : multiply_add(value, by, load_up_to(shift + i, n)), n);
  });
}

// out = (out + plus) times the gate.
inline void gate_normed(const NormArgs& args, int64_t row, float* out) {
  const float* gate = row_of(args.gate, row);
  const float* plus = args.plus.data == nullptr ? nullptr : row_of(args.plus, row);
  each_vector(args.width, [&](int i, int n) {
    Reg value = load_up_to(out + i, n);
    if (plus != nullptr) value = add(value, load_up_to(plus + i, n));
    store_up_to(out + i, mul(value, activate(args.gate_with, load_up_to(gate + i, n))), n);
  });
}

// Computes the norm of a group of a row: group `begin / width`, columns [begin, begin + width).
inline void norm_group(const NormArgs& args, int64_t row, int begin, int width, float* out) {
  const float* x = row_of(args.x, row) + begin;
  const float* residual =
      args.residual.data == nullptr ? nullptr : row_of(args.residual, row) + begin;
  const bool gated = args.gate.data != nullptr && args.gate_before;
  const float sum =
      gated ? multiply_gate(x, row_of(args.gate, row) + begin, args.gate_with, out + begin, width)
            : add_residual(x, residual, out + begin, width);
  if (args.kind == NormKind::kNone) return;
  const auto count = static_cast<float>(width);
  const float mean = args.kind == NormKind::kRms ? 0.0F : sum / count;
  const float variance = squared_deviations(out + begin, mean, width) / count;
  normalize(args.scale + begin, args.shift == nullptr ? nullptr : args.shift + begin, mean,
            div(set1(1.0F), sqrt(set1(variance + args.eps))), out + begin, width);
}

void norm(const NormArgs& args, int row_begin, int row_end) {
  const int width = args.width / args.groups;
  for (int64_t row = row_begin; row < row_end; ++row) {
    float* out = args.out + row * args.out_stride;
    for (int group = 0; group < args.groups; ++group) {
      norm_group(args, row, group * width, width, out);
    }
    if (args.gate.data != nullptr && !args.gate_before) gate_normed(args, row, out);
  }
}
