// Random features (kernels/feature_map.h) in vector registers. Included inside an anonymous
// namespace by each isa_*.cc, after elementary_inl.h. No include guard and no includes: see isa.h.

// The elements of x in one pass, and the blocks that use each element of omega at the same time.
// Neither changes the bits: an element of u is one sum, over x in ascending order.
constexpr int kInputElements = 64;
constexpr int kBlocks = 4;

// |x|^2, always added in the same order.
inline float square_of(const float* x, int count) {
  Reg sum = set1(0.0F);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Reg value = load(x + i);
    sum = multiply_add(value, value, sum);
  }
  if (i < count) {
    const Reg value = load_n(x + i, count - i);
    sum = multiply_add(value, value, sum);
  }
  return sum_lanes(sum);
}

// u += x^T omega for `rows` rows of omega and kN blocks, or u = x^T omega if `is_first`, for kV
// vectors of columns from column `j` on. The last vector has `left` columns.
template <int kN, int kV>
inline void project_columns(const FeatureArgs& args, const float* omega, int rows, bool is_first,
                            const float (*x)[kInputElements], float* const* u, int64_t j,
                            int left) {
  const auto size = [&](int v) { return v + 1 < kV ? kLanes : left; };
  Reg sum[kN][kV];
#pragma GCC unroll 8
  for (int b = 0; b < kN; ++b) {
#pragma GCC unroll 8
    for (int v = 0; v < kV; ++v) {
      sum[b][v] = is_first ? set1(0.0F) : load_up_to(u[b] + j + v * kLanes, size(v));
    }
  }
  for (int i = 0; i < rows; ++i) {
    const float* at = omega + i * args.projections + j;
    Reg column[kV];
#pragma GCC unroll 8
    for (int v = 0; v < kV; ++v) column[v] = load_up_to(at + v * kLanes, size(v));
#pragma GCC unroll 8
    for (int b = 0; b < kN; ++b) {
      const Reg value = set1(x[b][i]);
#pragma GCC unroll 8
      for (int v = 0; v < kV; ++v) sum[b][v] = multiply_add(value, column[v], sum[b][v]);
    }
  }
#pragma GCC unroll 8
  for (int b = 0; b < kN; ++b) {
#pragma GCC unroll 8
    for (int v = 0; v < kV; ++v) store_up_to(u[b] + j + v * kLanes, sum[b][v], size(v));
  }
}

// project_columns() for all columns.
template <int kN>
inline void project(const FeatureArgs& args, const float* omega, int rows, bool is_first,
                    const float (*x)[kInputElements], float* const* u) {
  constexpr int kV = kN > 1 ? 2 : 4;  // enough sums that multiply-adds do not wait for each other
  const int width = args.projections;
  int j = 0;
  for (; j + kV * kLanes <= width; j += kV * kLanes) {
    project_columns<kN, kV>(args, omega, rows, is_first, x, u, j, kLanes);
  }
  for (; j < width; j += kLanes) {
    const int left = width - j < kLanes ? width - j : kLanes;
    project_columns<kN, 1>(args, omega, rows, is_first, x, u, j, left);
  }
}

// out[0 .. width) holds u. of(u) is a pair of numbers. The first ones replace u; with kPairs, the
// second ones follow them.
template <bool kPairs, typename F>
inline void map_each(float* out, int width, const F& of) {
  int j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    const auto [low, high] = of(load(out + j));
    store(out + j, low);
    if (kPairs) store(out + width + j, high);
  }
  if (const int left = width - j; left > 0) {
    const auto [low, high] = of(load_n(out + j, left));
    store_n(out + j, low, left);
    if (kPairs) store_n(out + width + j, high, left);
  }
}

struct Pair {
  Reg low, high;
};

// The features of one block from u, which is at the start of `out`. `square`: |x'|^2.
inline void finish(const FeatureArgs& args, float square, float* out) {
  const int width = args.projections;
  if (args.map == FeatureMap::kFavor) {
    const Reg offset = set1(0.5F * square + args.constant);
    const Reg most = set1(88.0F);
    map_each<true>(out, width, [&](Reg u) {
      return Pair{exp_up_to(most, sub(u, offset)),
                  exp_up_to(most, sub(sub(set1(0.0F), u), offset))};
    });
  } else if (args.map == FeatureMap::kGeneralized) {
    const bool relu = args.kernel == Activation::kRelu;
    map_each<false>(out, width, [&](Reg u) {
      const Reg y = relu ? max(set1(0.0F), u) : gelu(u);
      return Pair{y, y};
    });
  } else {
    const Reg scale = set1(args.constant);
    map_each<true>(out, width, [&](Reg u) {
      const Angle angle = angle_of(u);
      return Pair{mul(scale, angle.cosine), mul(scale, angle.sine)};
    });
    if (args.map == FeatureMap::kSmoothedFourier) out[2 * width] = args.smoothing;
  }
}

// kN blocks of one input, from `block` on.
template <int kN>
void features_of_blocks(const FeatureArgs& args, const float* x, int block, float* out) {
  alignas(64) float scaled[kN][kInputElements];
  float scale[kN];
  float square[kN] = {};
  float* u[kN];
  for (int b = 0; b < kN; ++b) {
    scale[b] = args.scale;
    if (args.sigma != nullptr) {
      float lane[kLanes];
      store(lane, sqrt(set1(square_of(x + int64_t{block + b} * args.dk, args.dk))));
      scale[b] = args.scale / (lane[0] > 1e-12F ? lane[0] : 1e-12F);
    }
    u[b] = out + int64_t{block + b} * args.size;
  }
  for (int i = 0; i < args.dk; i += kInputElements) {
    const int rows = args.dk - i < kInputElements ? args.dk - i : kInputElements;
    for (int b = 0; b < kN; ++b) {
      const float* from = x + int64_t{block + b} * args.dk + i;
      for (int j = 0; j < rows; ++j) scaled[b][j] = scale[b] * from[j];
      if (args.sigma != nullptr) {
        const float* sigma = args.sigma + (block + b) % args.heads * args.sigma_stride + i;
        for (int j = 0; j < rows; ++j) scaled[b][j] *= sigma[j];
      }
      square[b] += square_of(scaled[b], rows);
    }
    project<kN>(args, args.omega + int64_t{i} * args.projections, rows, i == 0, scaled, u);
  }
  for (int b = 0; b < kN; ++b) finish(args, square[b], u[b]);
}

void features(const FeatureArgs& args, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t input = begin / args.blocks;
    const int block = static_cast<int>(begin % args.blocks);
    const float* x = args.x + input * args.x_stride;
    float* out = args.out + input * args.out_stride;
    if (block + kBlocks <= args.blocks && begin + kBlocks <= end) {
      features_of_blocks<kBlocks>(args, x, block, out);
      begin += kBlocks;
    } else {
      features_of_blocks<1>(args, x, block, out);
      begin += 1;
    }
  }
}
