// Softmax attention in vector registers: append() writes keys and values to the pages of a cache,
// and attend() computes the attention of queries over them. Included inside an anonymous namespace
// by each isa_*.cc, after elementary_inl.h and load_bf16(). No include guard and no includes: see
// isa.h.

constexpr int kPageVectors = kPagePositions / kLanes;
constexpr int kSegmentPages = 8;

// ---- numbers of a cache -------------------------------------------------------------------------

inline Reg load_cached(const float* p, int n) { return load_up_to(p, n); }
inline Reg load_cached(const uint16_t* p, int n) {
  if (n == kLanes) return load_bf16(p);
  uint16_t some[kLanes] = {};
  __builtin_memcpy(some, p, n * sizeof(uint16_t));
  return load_bf16(some);
}

inline void store_cached(float x, float* to) { *to = x; }
// Rounds to nearest, ties to even. NaN stays NaN.
inline void store_cached(float x, uint16_t* to) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  *to = static_cast<uint16_t>(x == x ? (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16 : 0x7fc0U);
}

// Prefetches the numbers [from, from + count) into the L2 cache.
template <typename Number>
inline void prefetch(const Number* from, int count) {
  constexpr int kLine = 64 / sizeof(Number);
  for (int i = 0; i < count; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

// ---- rotation -----------------------------------------------------------------------------------

// to [dk] = by * from, with the first numbers of `from` rotated by the angles of the position.
inline void turn(const AttendArgs& args, const float* from, int64_t position, float by, float* to) {
  const Reg factor = set1(by);
  const int half = args.rotated / 2;
  each_vector(half, [&](int i, int n) {
    const float* angles = row_of(args.angles, position);
    const Reg cosine = load_up_to(angles + i, n);
    const Reg sine = load_up_to(angles + half + i, n);
    const Reg low = load_up_to(from + i, n);
    const Reg high = load_up_to(from + half + i, n);
    store_up_to(to + i, mul(factor, sub(mul(low, cosine), mul(high, sine))), n);
    store_up_to(to + half + i, mul(factor, add(mul(high, cosine), mul(low, sine))), n);
  });
  each_vector(args.dk - args.rotated, [&](int i, int n) {
    const int at = args.rotated + i;
    store_up_to(to + at, mul(factor, load_up_to(from + at, n)), n);
  });
}

template <typename Number>
inline void append_all(const AttendArgs& args) {
  float key[kMostHeadSize];
  for (int64_t input = 0; input < args.inputs; ++input) {
    const int64_t position = args.position + input;
    const int64_t page = position / kPagePositions * args.page_bytes;
    const int64_t at = position % kPagePositions;
    turn(args, row_of(args.k, input), position, 1.0F, key);
    auto* const keys = reinterpret_cast<Number*>(args.keys + page) + at;
    auto* const values = reinterpret_cast<Number*>(args.values + page) + at * args.dv;
    const float* value = row_of(args.v, input);
    for (int i = 0; i < args.dk; ++i) store_cached(key[i], keys + i * kPagePositions);
    for (int i = 0; i < args.dv; ++i) store_cached(value[i], values + i);
  }
}

void append(const AttendArgs& args) {
  args.stored == DType::kBF16 ? append_all<uint16_t>(args) : append_all<float>(args);
}

// ---- queries ------------------------------------------------------------------------------------

// Sums over some positions, with p = exp(score - most): the largest score, the sum of p, and the
// sum of p v.
struct Attended {
  float most, total;
  float values[kMostHeadSize];

  void begin(int dv) {
    most = -__builtin_inff();
    total = 0.0F;
    each_vector(dv, [&](int i, int n) { store_up_to(values + i, set1(0.0F), n); });
  }
};

// The state of a query while it goes through the pages.
struct Query {
  int64_t count;  // how many positions it sees
  float* out;
  float q[kMostHeadSize];
  float p[kPagePositions];  // scores of a page, then their weights
  Attended all, segment;
};

inline float exp_of(float x) { return number_of(exp_nonpositive(set1(x))); }

// The number of vectors of positions that kN queries are multiplied with at once. It divides
// kPageVectors.
template <int kN>
constexpr int kScoreVectors = kPageVectors < 8 ? 4
                              : kN > 1         ? 2
                                               : 8;
static_assert(kPageVectors % 4 == 0 && (kPageVectors < 8 || kPageVectors % 8 == 0));

// Computes p = q . k of each position of a page, for kN queries. Each sum adds its products in
// order. Prefetches the keys of the next page from `next` on, one address after the other.
template <int kN, typename Number>
inline void score_page(Query* queries, int dk, const Number* keys, const Number* next) {
  constexpr int kV = kScoreVectors<kN>;
  for (int first = 0; first < kPageVectors; first += kV) {
    Reg sum[kN][kV];
#pragma GCC unroll 16
    for (int n = 0; n < kN; ++n) {
#pragma GCC unroll 16
      for (int j = 0; j < kV; ++j) sum[n][j] = set1(0.0F);
    }
    const Number* at = keys + first * kLanes;
    for (int i = 0; i < dk; ++i, at += kPagePositions) {
      prefetch(next, kV * kLanes);
      next += kV * kLanes;
      Reg key[kV];
#pragma GCC unroll 16
      for (int j = 0; j < kV; ++j) key[j] = load_cached(at + j * kLanes, kLanes);
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) {
        const Reg by = set1(queries[n].q[i]);
#pragma GCC unroll 16
        for (int j = 0; j < kV; ++j) sum[n][j] = multiply_add(by, key[j], sum[n][j]);
      }
    }
#pragma GCC unroll 16
    for (int n = 0; n < kN; ++n) {
#pragma GCC unroll 16
      for (int j = 0; j < kV; ++j) store(queries[n].p + (first + j) * kLanes, sum[n][j]);
    }
  }
}

// The largest of `most` and p [kPagePositions]. A NaN is ignored, because max() returns its second
// argument if the first is a NaN.
inline float largest(const float* p, float most) {
  Reg all = set1(most);
  for (int j = 0; j < kPageVectors; ++j) all = max(load(p + j * kLanes), all);
  float lane[kLanes];
  store(lane, all);
  for (int j = 0; j < kLanes; ++j) most = lane[j] > most ? lane[j] : most;
  return most;
}

// p [kPagePositions] = exp(p - most). Returns their sum, for which it repeatedly adds the second
// half of the vectors to the first.
inline float weigh_page(float most, float* p) {
  const Reg shift = set1(most);
  Reg sum[kPageVectors];
  for (int j = 0; j < kPageVectors; ++j) {
    sum[j] = exp_nonpositive(sub(load(p + j * kLanes), shift));
    store(p + j * kLanes, sum[j]);
  }
  for (int width = kPageVectors / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sum[j] = add(sum[j], sum[j + width]);
  }
  return sum_lanes(sum[0]);
}

// Turns the scores of a page into weights. Returns the factor by which to multiply the sums so far.
inline float weigh(Query& query, int visible) {
  Attended& to = query.segment;
  for (int j = visible; j < kPagePositions; ++j) query.p[j] = -__builtin_inff();
  const float most = largest(query.p, to.most);
  const float keep = exp_of(to.most - most);
  const float more = weigh_page(most, query.p);
  to.total = number_of(multiply_add(set1(to.total), set1(keep), set1(more)));
  to.most = most;
  return keep;
}

// o = keep o + the sum of p_j v_j over positions [first, last) of a page, in ascending order, for
// kN queries. It computes kC vectors of columns of o, from `column` on. The last vector has n
// numbers. Prefetches an equal part of the values `next` of the next page.
template <int kN, int kC, typename Number>
inline void add_columns(Query* queries, const float* keep, int first, int last,
                        const Number* values, const Number* next, int dv, int column, int n) {
  Reg sum[kN][kC];
#pragma GCC unroll 16
  for (int i = 0; i < kN; ++i) {
    const float* held = queries[i].segment.values + column;
#pragma GCC unroll 16
    for (int c = 0; c < kC; ++c) {
      sum[i][c] = mul(set1(keep[i]), load_up_to(held + c * kLanes, c + 1 < kC ? kLanes : n));
    }
  }
  const Number* at = values + int64_t{first} * dv + column;
  const Number* ahead = next + (int64_t{column} * kPagePositions + first * kC * kLanes);
  for (int j = first; j < last; ++j, at += dv, ahead += kC * kLanes) {
    prefetch(ahead, kC * kLanes);
    Reg value[kC];
#pragma GCC unroll 16
    for (int c = 0; c < kC; ++c) {
      value[c] = load_cached(at + c * kLanes, c + 1 < kC ? kLanes : n);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) {
      const Reg by = set1(queries[i].p[j]);
#pragma GCC unroll 16
      for (int c = 0; c < kC; ++c) sum[i][c] = multiply_add(by, value[c], sum[i][c]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kN; ++i) {
    float* held = queries[i].segment.values + column;
#pragma GCC unroll 16
    for (int c = 0; c < kC; ++c) {
      store_up_to(held + c * kLanes, sum[i][c], c + 1 < kC ? kLanes : n);
    }
  }
}

template <int kN, typename Number>
inline void add_values(Query* queries, const float* keep, int first, int last, const Number* values,
                       const Number* next, int dv) {
  constexpr int kC = kN > 1 ? 2 : 4;
  int column = 0;
  for (; column + kC * kLanes <= dv; column += kC * kLanes) {
    add_columns<kN, kC>(queries, keep, first, last, values, next, dv, column, kLanes);
  }
  for (; column < dv; column += kLanes) {
    const int n = dv - column < kLanes ? dv - column : kLanes;
    add_columns<kN, 1>(queries, keep, first, last, values, next, dv, column, n);
  }
}

// Adds a page to the sums of kN queries. Each query sees at least the first position of the page.
// Positions that a query does not see are never used.
template <int kN, typename Number>
inline void add_page(const AttendArgs& args, Query* queries, int64_t page) {
  const auto* keys = reinterpret_cast<const Number*>(args.keys + page * args.page_bytes);
  const auto* values = reinterpret_cast<const Number*>(args.values + page * args.page_bytes);
  // The last query sees the most positions.
  const bool is_last = queries[kN - 1].count <= (page + 1) * kPagePositions;
  const int64_t next = is_last ? 0 : args.page_bytes / int64_t{sizeof(Number)};
  score_page<kN>(queries, args.dk, keys, keys + next);
  int visible[kN];
  float keep[kN];
  int common = kPagePositions;
  for (int n = 0; n < kN; ++n) {
    const int64_t left = queries[n].count - page * kPagePositions;
    visible[n] = static_cast<int>(left < kPagePositions ? left : kPagePositions);
    common = visible[n] < common ? visible[n] : common;
    keep[n] = weigh(queries[n], visible[n]);
  }
  add_values<kN>(queries, keep, 0, common, values, values + next, args.dv);
  const float one = 1.0F;
  for (int n = 0; n < kN; ++n) {
    if (visible[n] == common) continue;
    add_values<1>(queries + n, &one, common, visible[n], values, values + next, args.dv);
  }
}

// Adds the sums of a segment to those of the segments before it.
inline void join(const Attended& segment, int dv, Attended& to) {
  const float most = segment.most > to.most ? segment.most : to.most;
  const Reg before = set1(exp_of(to.most - most));
  const Reg now = set1(exp_of(segment.most - most));
  to.most = most;
  to.total = number_of(multiply_add(set1(segment.total), now, mul(set1(to.total), before)));
  each_vector(dv, [&](int i, int n) {
    const Reg kept = mul(load_up_to(to.values + i, n), before);
    store_up_to(to.values + i, multiply_add(load_up_to(segment.values + i, n), now, kept), n);
  });
}

// Adds a page to the sums of each of kN queries that sees a position of the page.
template <int kN, typename Number>
inline void add_page_to_some(const AttendArgs& args, Query* queries, int64_t page) {
  const int64_t begin = page * kPagePositions;
  bool all = true;
  for (int n = 0; n < kN; ++n) all = all && queries[n].count > begin;
  if (all) return add_page<kN, Number>(args, queries, page);
  for (int n = 0; n < kN; ++n) {
    if (queries[n].count > begin) add_page<1, Number>(args, queries + n, page);
  }
}

// Computes kN queries of the row, from query `first` on, over all pages that at least one of them
// sees.
template <int kN, typename Number>
void attend_queries(const AttendArgs& args, int first) {
  Query queries[kN];
  int64_t pages = 0;
  for (int n = 0; n < kN; ++n) {
    Query& query = queries[n];
    const int64_t input = (first + n) / args.group;
    const int64_t head = (first + n) % args.group;
    query.count = args.position + input + 1;
    query.out = args.out + input * args.out_stride + head * args.dv;
    turn(args, row_of(args.q, input) + head * args.dk, query.count - 1, args.scale, query.q);
    query.all.begin(args.dv);
    const int64_t seen = (query.count + kPagePositions - 1) / kPagePositions;
    pages = seen > pages ? seen : pages;
  }
  for (int64_t page = 0; page < pages;) {
    const int64_t begin = page * kPagePositions;
    for (Query& query : queries) query.segment.begin(args.dv);
    const int64_t end = page + kSegmentPages < pages ? page + kSegmentPages : pages;
    for (; page < end; ++page) add_page_to_some<kN, Number>(args, queries, page);
    for (Query& query : queries) {
      if (query.count > begin) join(query.segment, args.dv, query.all);
    }
  }
  for (const Query& query : queries) {
    const Reg total = set1(query.all.total);
    each_vector(args.dv, [&](int i, int n) {
      store_up_to(query.out + i, div(load_up_to(query.all.values + i, n), total), n);
    });
  }
}

template <typename Number>
inline void attend_all(const AttendArgs& args, int begin, int end) {
  constexpr int kTogether = 4;
  for (; begin + kTogether <= end; begin += kTogether) {
    attend_queries<kTogether, Number>(args, begin);
  }
  // The one to three remaining queries share one pass over the cache, too.
  switch (end - begin) {
    case 3:
      return attend_queries<3, Number>(args, begin);
    case 2:
      return attend_queries<2, Number>(args, begin);
    case 1:
      return attend_queries<1, Number>(args, begin);
  }
}

void attend(const AttendArgs& args, int begin, int end) {
  args.stored == DType::kBF16 ? attend_all<uint16_t>(args, begin, end)
                              : attend_all<float>(args, begin, end);
}
