// The recurrence in vector registers: one core, and the code that each rule of rules.h adds.
// Included inside an anonymous namespace by each isa_*.cc, after elementary_inl.h. No include guard
// and no includes: see isa.h.

// ---- core ---------------------------------------------------------------------------------------

enum class Decay { kNone, kHead, kChannel };

// The terms of one input, for all rows of a head's state or some of them.
struct Terms {
  const float* q;
  const float* k;
  const float* v;
  float w_head = 1.0F;       // with Decay::kHead
  const float* w = nullptr;  // with Decay::kChannel
  const float* a = nullptr;  // with a correction
  const float* b = nullptr;
};

// S = diag(w) S + b (a^T S) + k v^T and out += S^T q, for kN vectors of columns and `rows` rows of
// S. With kBefore, out uses the S from before the update. With kPartial the only vector has `left`
// columns. Prefetches the data `ahead` floats further.
template <Decay kDecay, bool kCorrected, bool kBefore, int kN, bool kPartial>
inline void columns(float* state, int64_t dv, int rows, const Terms& terms, const float* v,
                    float* out, int left, int64_t ahead) {
  const float* const q = terms.q;
  const float* const k = terms.k;
  const Reg w_head = set1(terms.w_head);
  Reg value[kN];
  Reg sum[kN];
  Reg correction[kN];
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    value[j] = kPartial ? load_n(v, left) : load(v + j * kLanes);
    sum[j] = kPartial ? load_n(out, left) : load(out + j * kLanes);
    correction[j] = set1(0.0F);
  }
  for (int i = 0; kCorrected && i < rows; ++i) {
    const Reg a = set1(terms.a[i]);
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      const float* at = state + i * dv + j * kLanes;
      correction[j] = multiply_add(a, kPartial ? load_n(at, left) : load(at), correction[j]);
    }
  }
  for (int i = 0; i < rows; ++i, state += dv) {
    const Reg key = set1(k[i]);
    const Reg query = set1(q[i]);
    const Reg w = kDecay == Decay::kChannel ? set1(terms.w[i]) : w_head;
    const Reg b = kCorrected ? set1(terms.b[i]) : key;
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      float* at = state + j * kLanes;
      __builtin_prefetch(at + ahead, 1);
      Reg held = kPartial ? load_n(at, left) : load(at);
      if (kBefore) sum[j] = multiply_add(query, held, sum[j]);
      if (kDecay != Decay::kNone) held = mul(w, held);
      if (kCorrected) held = multiply_add(b, correction[j], held);
      const Reg updated = multiply_add(key, value[j], held);
      kPartial ? store_n(at, updated, left) : store(at, updated);
      if (!kBefore) sum[j] = multiply_add(query, updated, sum[j]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kN; ++j) {
    kPartial ? store_n(out, sum[j], left) : store(out + j * kLanes, sum[j]);
  }
}

// columns() over all dv columns. With a correction, `rows` must be all rows of S.
template <Decay kDecay, bool kCorrected, bool kBefore = false>
inline void update(float* state, int dv, int rows, const Terms& terms, float* out, int64_t ahead) {
  int j = 0;
  for (; j + 4 * kLanes <= dv; j += 4 * kLanes) {
    columns<kDecay, kCorrected, kBefore, 4, false>(state + j, dv, rows, terms, terms.v + j, out + j,
                                                   0, ahead);
  }
  for (; j + 2 * kLanes <= dv; j += 2 * kLanes) {
    columns<kDecay, kCorrected, kBefore, 2, false>(state + j, dv, rows, terms, terms.v + j, out + j,
                                                   0, ahead);
  }
  for (; j + kLanes <= dv; j += kLanes) {
    columns<kDecay, kCorrected, kBefore, 1, false>(state + j, dv, rows, terms, terms.v + j, out + j,
                                                   0, ahead);
  }
  if (j == dv) return;
  columns<kDecay, kCorrected, kBefore, 1, true>(state + j, dv, rows, terms, terms.v + j, out + j,
                                                dv - j, ahead);
}

// out = by * x.
inline void scale(const float* x, int count, float by, float* out) {
  const Reg factor = set1(by);
  each_vector(count,
              [&](int i, int n) { store_up_to(out + i, mul(factor, load_up_to(x + i, n)), n); });
}

inline void set_zero(float* x, int count) {
  each_vector(count, [&](int i, int n) { store_up_to(x + i, set1(0.0F), n); });
}

// The prefetch distance in floats: from a head's state to the next state during the last input, and
// 0 before that.
inline int64_t ahead_of(const RecurArgs& args, int64_t input) {
  return input + 1 < args.inputs ? 0 : args.next - args.state;
}

// ---- linear attention ---------------------------------------------------------------------------

// The rows of S in one pass. phi(q) and phi(k) of this many rows fit on the stack, for any dk.
constexpr int kStateRows = 64;

// Computes take * phi(k) and phi(q) of `count` elements, and z = keep * z + take * phi(k). Returns
// `dot` plus the lanes of phi(q) . z.
template <FeatureMap kMap, bool kGated>
inline Reg keys_and_queries(const float* k, const float* q, int count, float keep, float take,
                            float* z, float* phi_k, float* phi_q, Reg dot) {
  const Reg kept = set1(keep);
  const Reg taken = set1(take);
  each_vector(count, [&](int i, int n) {
    const Reg mapped = phi<kMap>(load_up_to(k + i, n));
    const Reg key = first_up_to(kGated ? mul(taken, mapped) : mapped, n);
    const Reg query = first_up_to(phi<kMap>(load_up_to(q + i, n)), n);
    const Reg held = load_up_to(z + i, n);
    const Reg total = kGated ? multiply_add(kept, held, key) : add(held, key);
    store(phi_k + i, key);
    store(phi_q + i, query);
    store_up_to(z + i, total, n);
    dot = multiply_add(query, total, dot);
  });
  return dot;
}

inline void divide(float* x, int count, float by) {
  const Reg divisor = set1(by);
  each_vector(count,
              [&](int i, int n) { store_up_to(x + i, div(load_up_to(x + i, n), divisor), n); });
}

// Prefetches the next z, which follows the next S. update() prefetches that S.
inline void ask_for_next_z(const RecurArgs& args, const float* z) {
  for (int i = 0; i < args.dk; i += 16) __builtin_prefetch(z + (args.next - args.state) + i, 1);
}

template <FeatureMap kMap, bool kGated>
void recur_linear(const RecurArgs& args) {
  alignas(64) float phi_k[kStateRows];
  alignas(64) float phi_q[kStateRows];
  float* z = args.state + int64_t{args.dk} * args.dv;
  for (int64_t input = 0; input < args.inputs; ++input) {
    const float* k = row_of(args.k, input);
    const float* q = row_of(args.q, input);
    float* out = args.out + input * args.out_stride;
    float keep = 1.0F;
    float take = 1.0F;
    if (kGated) {
      const auto gate = LinearRule<VectorMath>::of(set1(*row_of(args.gate, input)));
      keep = number_of(gate.keep);
      take = number_of(gate.take);
    }
    set_zero(out, args.dv);
    if (input + 1 == args.inputs) ask_for_next_z(args, z);
    Reg dot = set1(0.0F);
    for (int i = 0; i < args.dk; i += kStateRows) {
      const int rows = args.dk - i < kStateRows ? args.dk - i : kStateRows;
      dot =
          keys_and_queries<kMap, kGated>(k + i, q + i, rows, keep, take, z + i, phi_k, phi_q, dot);
      const Terms terms = {.q = phi_q, .k = phi_k, .v = row_of(args.v, input), .w_head = keep};
      update<kGated ? Decay::kHead : Decay::kNone, false>(
          args.state + int64_t{i} * args.dv, args.dv, rows, terms, out, ahead_of(args, input));
    }
    divide(out, args.dv, sum_lanes(dot) + args.eps);
  }
}

template <FeatureMap kMap>
void recur_mapped(const RecurArgs& args) {
  args.gate.data == nullptr ? recur_linear<kMap, false>(args) : recur_linear<kMap, true>(args);
}

// ---- RWKV-7 -------------------------------------------------------------------------------------

struct Rwkv7Terms {
  alignas(64) float w[kMostState];
  alignas(64) float a[kMostState];
  alignas(64) float b[kMostState];
  alignas(64) float k[kMostState];
  alignas(64) float v[kMostState];
};

// w, a, b and k of all channels. Returns the factor of v in the bonus.
inline float rwkv7_channels(const RecurArgs& args, int64_t input, Rwkv7Terms& to) {
  using Rule = Rwkv7Rule<VectorMath>;
  Reg squares = set1(0.0F);
  Reg bonus = set1(0.0F);
  each_vector(args.dk, [&](int i, int n) {
    const auto of = [&](const Matrix& from) { return load_up_to(row_of(from, input) + i, n); };
    const auto made = Rule::of({.r = of(args.q),
                                .k = of(args.k),
                                .decay = of(args.decay),
                                .rate = of(args.rate),
                                .k_k = load_up_to(args.k_k + i, n),
                                .k_a = load_up_to(args.k_a + i, n),
                                .r_k = load_up_to(args.r_k + i, n)});
    store(to.w + i, made.w);
    store(to.a + i, made.a);
    store(to.b + i, made.b);
    store(to.k + i, made.k);
    squares = multiply_add(made.a, made.a, squares);
    bonus = add(bonus, made.bonus);
  });
  const float by = number_of(Rule::inverse_length(set1(sum_lanes(squares)), args.eps));
  scale(to.a, args.dk, by, to.a);
  scale(to.b, args.dk, by, to.b);
  return sum_lanes(bonus);
}

inline const float* rwkv7_values(const RecurArgs& args, int64_t input, Rwkv7Terms& to) {
  const float* v = row_of(args.v, input);
  if (args.mix.data == nullptr) return v;
  each_vector(args.dv, [&](int j, int n) {
    const auto of = [&](const Matrix& from) { return load_up_to(row_of(from, input) + j, n); };
    store(to.v + j, Rwkv7Rule<VectorMath>::value(of(args.v), of(args.first), of(args.mix)));
  });
  return to.v;
}

void recur_rwkv7(const RecurArgs& args) {
  Rwkv7Terms made;
  for (int64_t input = 0; input < args.inputs; ++input) {
    const float bonus = rwkv7_channels(args, input, made);
    const Terms terms = {.q = row_of(args.q, input),
                         .k = made.k,
                         .v = rwkv7_values(args, input, made),
                         .w = made.w,
                         .a = made.a,
                         .b = made.b};
    float* out = args.out + input * args.out_stride;
    scale(terms.v, args.dv, bonus, args.bonus + input * args.bonus_stride);
    set_zero(out, args.dv);
    update<Decay::kChannel, true>(args.state, args.dv, args.dk, terms, out, ahead_of(args, input));
  }
}

// ---- Mamba-2 ------------------------------------------------------------------------------------

void recur_mamba2(const RecurArgs& args) {
  alignas(64) float v[kMostState];
  for (int64_t input = 0; input < args.inputs; ++input) {
    const auto made =
        Mamba2Rule<VectorMath>::of(set1(*row_of(args.decay, input)),
                                   {args.dt_rate, args.dt_bias, args.dt_least, args.dt_most});
    const float* x = row_of(args.v, input);
    scale(x, args.dv, number_of(made.dt), v);
    const Terms terms = {.q = row_of(args.q, input),
                         .k = row_of(args.k, input),
                         .v = v,
                         .w_head = number_of(made.w)};
    float* out = args.out + input * args.out_stride;
    scale(x, args.dv, args.skip, out);
    update<Decay::kHead, false>(args.state, args.dv, args.dk, terms, out, ahead_of(args, input));
  }
}

// ---- Mamba-1 ------------------------------------------------------------------------------------

// Columns [j, j + n) of a head: all inputs and rows of S for one vector of channels.
inline void mamba1_columns(const RecurArgs& args, int j, int n) {
  for (int64_t input = 0; input < args.inputs; ++input) {
    const Reg x = load_up_to(row_of(args.v, input) + j, n);
    const Reg raw =
        add(load_up_to(row_of(args.decay, input) + j, n), load_up_to(args.biases + j, n));
    const Reg dt = softplus(raw);
    const Reg value = mul(dt, x);
    const float* k = row_of(args.k, input);
    const float* q = row_of(args.q, input);
    Reg y = mul(load_up_to(args.skips + j, n), x);
    for (int64_t i = 0; i < args.dk; ++i) {
      const int64_t at = i * args.dv + j;
      const Reg rate = sub(set1(0.0F), load_up_to(args.rates + at, n));
      const Reg kept = mul(exp_nonpositive(mul(rate, dt)), load_up_to(args.state + at, n));
      const Reg updated = multiply_add(set1(k[i]), value, kept);
      store_up_to(args.state + at, updated, n);
      y = multiply_add(set1(q[i]), updated, y);
    }
    const Reg gate = activate(Activation::kSilu, load_up_to(row_of(args.gate, input) + j, n));
    store_up_to(args.out + input * args.out_stride + j, mul(y, gate), n);
  }
}

void recur_mamba1(const RecurArgs& args) {
  each_vector(args.dv, [&](int j, int n) { mamba1_columns(args, j, n); });
}

// ---- the gated linear family --------------------------------------------------------------------

struct GatedNumbers {
  alignas(64) float q[kMostState];
  alignas(64) float k[kMostState];
  alignas(64) float w[kMostState];
  alignas(64) float a[kMostState];
  alignas(64) float b[kMostState];
  alignas(64) float v[kMostState];
};

// Rotates the pairs (x[i], x[i + dk / 2]) by the angles of `turn`: sine, cosine, sine, ...
inline void rotate(const float* turn, int dk, float* x) {
  const int half = dk / 2;
  for (int i = 0; i < half; ++i) {
    const float low = x[i];
    const float high = x[i + half];
    x[i] = low * turn[2 * i + 1] - high * turn[2 * i];
    x[i + half] = high * turn[2 * i + 1] + low * turn[2 * i];
  }
}

// A query or a key: mapped, normalized, rotated and scaled.
inline void make_key(const RecurArgs& args, int64_t input, const float* x, float by, float* to) {
  const GatedTerms& terms = args.gated;
  Reg sum = set1(0.0F);
  each_vector(args.dk, [&](int i, int n) {
    const Reg mapped = first_up_to(activate(terms.map, load_up_to(x + i, n)), n);
    store(to + i, mapped);
    sum = terms.norm == KeyNorm::kL2 ? multiply_add(mapped, mapped, sum) : add(sum, mapped);
  });
  if (terms.norm != KeyNorm::kNone) {
    by *= number_of(GatedRule<VectorMath>::factor(terms.norm, set1(sum_lanes(sum))));
  }
  if (by != 1.0F) scale(to, args.dk, by, to);
  if (args.turn.data != nullptr) rotate(row_of(args.turn, input), args.dk, to);
}

// w of all channels, and k if it follows from w.
inline void make_decay(const RecurArgs& args, int64_t input, GatedNumbers& to) {
  const DecayKind kind = args.gated.decay;
  const float* x = args.decay.data == nullptr ? nullptr : row_of(args.decay, input);
  const auto constant = [&](const float* from, int i, int n, float without) {
    return from == nullptr ? set1(without) : load_up_to(from + i, n);
  };
  each_vector(args.dk, [&](int i, int n) {
    const Reg at = args.gated.decay_of_heads ? set1(*x) : constant(x, i, n, 0.0F);
    const auto made =
        GatedRule<VectorMath>::of(kind, at, constant(args.decay_rate, i, n, 1.0F),
                                  constant(args.decay_bias, i, n, 0.0F), args.gated.decay_least);
    store(to.w + i, made.w);
    if (kind == DecayKind::kSigmoid) store(to.k + i, made.k);
  });
}

// Computes a, b and v of the delta rule.
inline void make_correction(const RecurArgs& args, int64_t input, GatedNumbers& to) {
  const float gate =
      args.rate.data == nullptr ? 1.0F : number_of(sigmoid(set1(*row_of(args.rate, input))));
  const float beta = args.gated.delta * gate;
  each_vector(args.dk, [&](int i, int n) {
    store(to.a + i, mul(load_up_to(to.w + i, n), load_up_to(to.k + i, n)));
  });
  scale(to.k, args.dk, -beta, to.b);
  scale(row_of(args.v, input), args.dv, beta, to.v);
}

// The sum of q * bonus * k.
inline float bonus_factor(const RecurArgs& args, const GatedNumbers& made) {
  Reg sum = set1(0.0F);
  each_vector(args.dk, [&](int i, int n) {
    const Reg key = mul(load_up_to(args.bonus_of + i, n), load_up_to(made.k + i, n));
    sum = multiply_add(load_up_to(made.q + i, n), key, sum);
  });
  return sum_lanes(sum);
}

template <bool kCorrected, bool kBefore>
void recur_gated(const RecurArgs& args) {
  GatedNumbers made;
  for (int64_t input = 0; input < args.inputs; ++input) {
    make_key(args, input, row_of(args.q, input), args.gated.scale, made.q);
    make_decay(args, input, made);
    if (args.k.data != nullptr) make_key(args, input, row_of(args.k, input), 1.0F, made.k);
    if (kCorrected) make_correction(args, input, made);
    const Terms terms = {.q = made.q,
                         .k = made.k,
                         .v = kCorrected ? made.v : row_of(args.v, input),
                         .w = made.w,
                         .a = made.a,
                         .b = made.b};
    float* out = args.out + input * args.out_stride;
    if (kBefore) {
      scale(terms.v, args.dv, bonus_factor(args, made), out);
    } else {
      set_zero(out, args.dv);
    }
    update<Decay::kChannel, kCorrected, kBefore>(args.state, args.dv, args.dk, terms, out,
                                                 ahead_of(args, input));
  }
}

void recur_by_gates(const RecurArgs& args) {
  if (args.bonus_of != nullptr) {
    recur_gated<false, true>(args);
  } else if (args.gated.delta != 0.0F) {
    recur_gated<true, false>(args);
  } else {
    recur_gated<false, false>(args);
  }
}

void recur(const RecurArgs& args) {
  if (args.rule == Rule::kGated) {
    recur_by_gates(args);
  } else if (args.rule == Rule::kMamba1) {
    recur_mamba1(args);
  } else if (args.rule == Rule::kRwkv7) {
    recur_rwkv7(args);
  } else if (args.rule == Rule::kMamba2) {
    recur_mamba2(args);
  } else if (args.map == FeatureMap::kElu) {
    recur_mapped<FeatureMap::kElu>(args);
  } else if (args.map == FeatureMap::kRelu) {
    recur_mapped<FeatureMap::kRelu>(args);
  } else {
    recur_mapped<FeatureMap::kNone>(args);
  }
}
