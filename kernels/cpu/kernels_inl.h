// The operations, written once over a vector register. Included inside an anonymous namespace by
// each isa_*.cc, which defines before it: Reg, kLanes, kRows, kAccumulators, set1, load, store,
// load_n, store_n, first (the first n lanes, zero elsewhere), add, sub, mul, div, sqrt, max, min,
// multiply_add(a, b, c) = a * b + c, if_above, scale_by_power, negate_if_odd, even and odd (of
// pairs of bf16, widened), dot_pairs and round_pairs (bf16_inl.h says what these are), and includes
// elementary_inl.h and features_inl.h. No include guard and no includes: see isa.h.
//
// Everything that decides bits is here: which lane adds which element, and in which order. None of
// it looks at the number of rows.

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

// out = x within [-1e30, 1e30]; returns the largest. max() gives its second argument for what is no
// number.
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

// Applies gelu to a tile that has just been stored and is still in the nearest cache.
inline void gelu_tile(float* y, int64_t y_stride, int rows, int cols) {
  for (int row = 0; row < rows; ++row, y += y_stride) {
    int col = 0;
    for (; col + kLanes <= cols; col += kLanes) store(y + col, gelu(load(y + col)));
    if (col < cols) store_n(y + col, gelu(load_n(y + col, cols - col)), cols - col);
  }
}

// How far ahead of its use a panel is asked for: what passes while it comes from a far cache.
constexpr int kAhead = 2048;  // words, of all panels that a tile reads

// What a word of a panel is multiplied with: a number of fp32 with one; of a pair, widened, each
// half with one; a pair with a pair.
enum class Factors { kFp32, kWidened, kPairs };

// sum += x * column for kN rows and kColumns vectors.
template <bool kPairs, int kN, int kColumns>
RUNNEL_INLINE void multiply(const float* x, int64_t x_stride, const Reg (&column)[kColumns],
                            Reg (&sum)[kN][kColumns]) {
#pragma GCC unroll 32
  for (int i = 0; i < kN; ++i) {
    const Reg value = set1(x[i * x_stride]);
#pragma GCC unroll 32
    for (int j = 0; j < kColumns; ++j) {
      if constexpr (kPairs) {
        sum[i][j] = dot_pairs(value, column[j], sum[i][j]);
      } else {
        sum[i][j] = multiply_add(value, column[j], sum[i][j]);
      }
    }
  }
}

// One word of each of kColumns vectors, the first halves and then the second.
template <int kN, int kColumns>
RUNNEL_INLINE void multiply_widened(const float* x, int64_t x_stride, bool second,
                                    const Reg (&pairs)[kColumns], Reg (&sum)[kN][kColumns]) {
  Reg column[kColumns];
#pragma GCC unroll 32
  for (int j = 0; j < kColumns; ++j) column[j] = even(pairs[j]);
  multiply<false>(x, x_stride, column, sum);
  if (!second) return;
#pragma GCC unroll 32
  for (int j = 0; j < kColumns; ++j) column[j] = odd(pairs[j]);
  multiply<false>(x + 1, x_stride, column, sum);
}

// Adds all products of kN rows and kP panels, one word after the other, ascending.
template <Factors kFactors, int kN, int kP>
RUNNEL_INLINE void add_products(const MatmulArgs& args, const float* x, const float* w,
                                Reg (&sum)[kN][2 * kP]) {
  const int64_t words = kFactors == Factors::kFp32 ? args.in : (args.in + 1) / 2;
  const int64_t panel_size = words * kPanel;
  for (int64_t k = 0; k < words; ++k, w += kPanel) {
    Reg column[2 * kP];
#pragma GCC unroll 32
    for (int j = 0; j < 2 * kP; ++j) {
      const float* at = w + (j / 2) * panel_size + (j % 2) * kLanes;
      column[j] = load(at);
      __builtin_prefetch(at + kAhead / kP);
    }
    if constexpr (kFactors == Factors::kWidened) {
      multiply_widened(x + 2 * k, args.x_stride, 2 * k + 1 < args.in, column, sum);
    } else {
      multiply<kFactors == Factors::kPairs>(x + k, args.x_stride, column, sum);
    }
  }
}

// kN rows by kP panels in registers. Each output element is one accumulator that starts from the
// bias and takes one product after the other: the only order of sums there is.
template <Factors kFactors, int kN, int kP>
void tile(const MatmulArgs& args, int row, int panel) {
  const int64_t words = kFactors == Factors::kFp32 ? args.in : (args.in + 1) / 2;
  Reg sum[kN][2 * kP];
#pragma GCC unroll 32
  for (int j = 0; j < 2 * kP; ++j) {
    const Reg bias = load(args.bias + int64_t{panel} * kPanel + j * kLanes);
#pragma GCC unroll 32
    for (int i = 0; i < kN; ++i) sum[i][j] = bias;
  }
  add_products<kFactors, kN, kP>(args, args.x + row * args.x_stride,
                                 args.panels + panel * words * kPanel, sum);
  if (args.activation == Activation::kRelu) {
#pragma GCC unroll 32
    for (int j = 0; j < 2 * kP; ++j) {
#pragma GCC unroll 32
      for (int i = 0; i < kN; ++i) sum[i][j] = max(set1(0.0F), sum[i][j]);
    }
  }
  const int col = panel * kPanel;
  const int cols = args.out - col < kP * kPanel ? args.out - col : kP * kPanel;
  float* y = args.y + row * args.y_stride + col;
#pragma GCC unroll 32
  for (int j = 0; j < 2 * kP; ++j) {
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
  if (args.activation == Activation::kGelu) gelu_tile(y, args.y_stride, kN, cols);
}

// Panels [begin, end) for kN rows, kP at once while they last: few rows need several panels, or
// each multiply-add would wait for the one before it.
template <Factors kFactors, int kN, int kP>
void panels(const MatmulArgs& args, int row, int begin, int end) {
  for (; begin + kP <= end; begin += kP) tile<kFactors, kN, kP>(args, row, begin);
  if constexpr (kP > 1) panels<kFactors, kN, kP / 2>(args, row, begin, end);
}

constexpr int panels_at_once(int rows) {
  for (int count = 4; count > 1; count /= 2) {
    if (2 * rows * count <= kAccumulators) return count;
  }
  return 1;
}

template <Factors kFactors, int kN>
void rows_by_panels(const MatmulArgs& args, int rows, int row, int begin, int end) {
  if (rows == kN) {
    panels<kFactors, kN, panels_at_once(kN)>(args, row, begin, end);
  } else if constexpr (kN > 1) {
    rows_by_panels<kFactors, kN - 1>(args, rows, row, begin, end);
  }
}

template <Factors kFactors>
void matmul(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  const int blocks = (rows + kRows - 1) / kRows;
  // One block of rows: all its panels. Several: a panel stays in the cache while the blocks pass
  // over it.
  const int step = blocks == 1 ? panel_end - panel_begin : 1;
  for (int panel = panel_begin; panel < panel_end; panel += step) {
    for (int block = 0; block < blocks; ++block) {
      const int begin = static_cast<int>(int64_t{rows} * block / blocks);
      const int end = static_cast<int>(int64_t{rows} * (block + 1) / blocks);
      rows_by_panels<kFactors, kRows>(args, end - begin, begin, panel, panel + step);
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

inline void normalize(const NormArgs& args, float mean, Reg inverse, float* out) {
  const Reg means = set1(mean);
  int i = 0;
  for (; i + kLanes <= args.width; i += kLanes) {
    const Reg value = mul(sub(load(out + i), means), inverse);
    store(out + i, multiply_add(value, load(args.scale + i), load(args.shift + i)));
  }
  if (const int left = args.width - i; left > 0) {
    const Reg value = mul(sub(load_n(out + i, left), means), inverse);
    const Reg scaled =
        multiply_add(value, load_n(args.scale + i, left), load_n(args.shift + i, left));
    store_n(out + i, scaled, left);
  }
}

void norm(const NormArgs& args, int row_begin, int row_end) {
  const float width = static_cast<float>(args.width);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* residual =
        args.residual == nullptr ? nullptr : args.residual + row * args.residual_stride;
    float* out = args.out + row * args.out_stride;
    const float mean =
        add_residual(args.x + row * args.x_stride, residual, out, args.width) / width;
    const float variance = squared_deviations(out, mean, args.width) / width;
    normalize(args, mean, div(set1(1.0F), sqrt(set1(variance + args.eps))), out);
  }
}

// ---- recur --------------------------------------------------------------------------------------

// Rows of S that one pass takes: phi(q) and phi(k) of so many fit on the stack, whatever dk is.
constexpr int kStateRows = 64;

// What a gate lets through: S = keep S + take phi(k) v^T.
struct Gate {
  float keep = 1.0F, take = 1.0F;
};

// sigmoid(x) and 1 - sigmoid(x), neither by subtraction.
inline Gate gate_of(float x) {
  float lane[kLanes];
  store(lane, exp_nonpositive(set1(x > 0.0F ? 0.0F - x : x)));
  const float more = 1.0F / (1.0F + lane[0]);
  const float less = lane[0] / (1.0F + lane[0]);
  return x > 0.0F ? Gate{more, less} : Gate{less, more};
}

// take phi(k) and phi(q) of `count` elements, z = keep z + take phi(k), and the lanes of phi(q) . z
// added to `dot`.
template <FeatureMap kMap, bool kGated>
inline Reg keys_and_queries(const float* k, const float* q, int count, const Gate& gate, float* z,
                            float* phi_k, float* phi_q, Reg dot) {
  const Reg keep = set1(gate.keep);
  const Reg take = set1(gate.take);
  const auto taken = [&](Reg key) { return kGated ? mul(take, key) : key; };
  const auto sum = [&](Reg held, Reg key) {
    return kGated ? multiply_add(keep, held, key) : add(held, key);
  };
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Reg key = taken(phi<kMap>(load(k + i)));
    const Reg query = phi<kMap>(load(q + i));
    const Reg total = sum(load(z + i), key);
    store(phi_k + i, key);
    store(phi_q + i, query);
    store(z + i, total);
    dot = multiply_add(query, total, dot);
  }
  if (const int left = count - i; left > 0) {
    const Reg key = first(taken(phi<kMap>(load_n(k + i, left))), left);
    const Reg query = first(phi<kMap>(load_n(q + i, left)), left);
    const Reg total = sum(load_n(z + i, left), key);
    store(phi_k + i, key);
    store(phi_q + i, query);
    store_n(z + i, total, left);
    dot = multiply_add(query, total, dot);
  }
  return dot;
}

// S = keep S + phi(k) v^T and out += phi(q)^T S for kN vectors of columns and `rows` rows of S.
// With kPartial the only vector has `left` columns. What lies `ahead` floats behind is asked for.
template <bool kGated, int kN, bool kPartial>
inline void columns(float* state, int64_t dv, int rows, float keep, const float* phi_k,
                    const float* phi_q, const float* v, float* out, int left, int64_t ahead) {
  Reg value[kN];
  Reg sum[kN];
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    value[j] = kPartial ? load_n(v, left) : load(v + j * kLanes);
    sum[j] = kPartial ? load_n(out, left) : load(out + j * kLanes);
  }
  for (int i = 0; i < rows; ++i, state += dv) {
    const Reg key = set1(phi_k[i]);
    const Reg query = set1(phi_q[i]);
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      float* at = state + j * kLanes;
      __builtin_prefetch(at + ahead, 1);
      const Reg held = kPartial ? load_n(at, left) : load(at);
      const Reg updated = multiply_add(key, value[j], kGated ? mul(set1(keep), held) : held);
      kPartial ? store_n(at, updated, left) : store(at, updated);
      sum[j] = multiply_add(query, updated, sum[j]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    kPartial ? store_n(out, sum[j], left) : store(out + j * kLanes, sum[j]);
  }
}

// columns() over all dv columns.
template <bool kGated>
inline void state_rows(float* state, int dv, int rows, float keep, const float* phi_k,
                       const float* phi_q, const float* v, float* out, int64_t ahead) {
  int j = 0;
  for (; j + 4 * kLanes <= dv; j += 4 * kLanes) {
    columns<kGated, 4, false>(state + j, dv, rows, keep, phi_k, phi_q, v + j, out + j, 0, ahead);
  }
  for (; j + 2 * kLanes <= dv; j += 2 * kLanes) {
    columns<kGated, 2, false>(state + j, dv, rows, keep, phi_k, phi_q, v + j, out + j, 0, ahead);
  }
  for (; j + kLanes <= dv; j += kLanes) {
    columns<kGated, 1, false>(state + j, dv, rows, keep, phi_k, phi_q, v + j, out + j, 0, ahead);
  }
  if (j == dv) return;
  columns<kGated, 1, true>(state + j, dv, rows, keep, phi_k, phi_q, v + j, out + j, dv - j, ahead);
}

inline void divide(float* x, int count, float by) {
  const Reg divisor = set1(by);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) store(x + i, div(load(x + i), divisor));
  if (i < count) store_n(x + i, div(load_n(x + i, count - i), divisor), count - i);
}

inline void set_zero(float* x, int count) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) store(x + i, set1(0.0F));
  if (i < count) store_n(x + i, set1(0.0F), count - i);
}

template <FeatureMap kMap, bool kGated>
void recur_with(const RecurArgs& args) {
  alignas(64) float phi_k[kStateRows];
  alignas(64) float phi_q[kStateRows];
  float* z = args.state + int64_t{args.dk} * args.dv;
  for (int64_t input = 0; input < args.inputs; ++input) {
    const float* k = args.k + input * args.k_stride;
    const float* q = args.q + input * args.q_stride;
    float* out = args.out + input * args.out_stride;
    const int64_t ahead = input + 1 < args.inputs ? 0 : args.next - args.state;
    const Gate gate = kGated ? gate_of(args.gate[input * args.gate_stride]) : Gate{};
    set_zero(out, args.dv);
    Reg dot = set1(0.0F);
    for (int i = 0; i < args.dk; i += kStateRows) {
      const int rows = args.dk - i < kStateRows ? args.dk - i : kStateRows;
      dot = keys_and_queries<kMap, kGated>(k + i, q + i, rows, gate, z + i, phi_k, phi_q, dot);
      state_rows<kGated>(args.state + int64_t{i} * args.dv, args.dv, rows, gate.keep, phi_k, phi_q,
                         args.v + input * args.v_stride, out, ahead);
    }
    divide(out, args.dv, sum_lanes(dot) + args.eps);
  }
}

template <FeatureMap kMap>
void recur_of(const RecurArgs& args) {
  args.gate == nullptr ? recur_with<kMap, false>(args) : recur_with<kMap, true>(args);
}

void recur(const RecurArgs& args) {
  if (args.map == FeatureMap::kElu) {
    recur_of<FeatureMap::kElu>(args);
  } else if (args.map == FeatureMap::kRelu) {
    recur_of<FeatureMap::kRelu>(args);
  } else {
    recur_of<FeatureMap::kNone>(args);
  }
}

constexpr Kernels kKernels = {.panel = kPanel,
                              .matmul = matmul<Factors::kFp32>,
                              .matmul_widened = matmul<Factors::kWidened>,
                              .matmul_pairs = matmul<Factors::kPairs>,
                              .round_pairs = round_pairs,
                              .norm = norm,
                              .features = features,
                              .recur = recur,
                              .exp = exp_scaled,
                              .finite = make_finite};
