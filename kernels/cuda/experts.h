// The operation experts(): the choice of each input's experts, products in which every row has the
// weights of its own expert, and the sum of each input's experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/choose_experts.h"
#include "kernels/cuda/block_product.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/rank.h"
#include "kernels/experts.h"

namespace runnel::cuda {

// A weight of an expert as products read it. A table of these is in the device's memory. Addresses
// are distances from base_of(), an argument of the kernel, so the compiler knows the kind of
// memory.
struct ExpertWeight {
  int64_t panels, bias;  // bytes; the bias is zeros
  int in, out;
  StoredType blocks;  // the type of its blocks; kF32 if it is not in blocks
};

inline const std::byte* base_of(const Experts& experts) { return experts.up[0].panels.data(); }

// The tables of Experts::gate, up and down, one after the other.
inline std::vector<ExpertWeight> expert_weights(const Experts& experts) {
  const std::byte* const base = base_of(experts);
  std::vector<ExpertWeight> table;
  for (const std::span<const Weight> weights : {experts.gate, experts.up, experts.down}) {
    for (const Weight& weight : weights) {
      table.push_back({weight.panels.data() - base, weight.bias.data() - base, weight.in,
                       weight.out, weight.blocks});
    }
  }
  return table;
}

// ---- the choice ---------------------------------------------------------------------------------

struct RouteArgs {
  const float* scores;
  int64_t scores_stride;
  int experts;
  Router router;
  int32_t* used;  // [rows, router.used()]
  float* shares;  // the same
};

// A block chooses the experts of a row, one after another.
struct RouteKernel {
  using Args = RouteArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(int64_t rows) {
    return {.blocks = rows, .shared_bytes = (kMaxExperts + 1) * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const float* scores = args.scores + block.index() * args.scores_stride;
    int32_t* used = args.used + block.index() * args.router.used();
    float* shares = args.shares + block.index() * args.router.used();
    float* keys = block.template shared<float>();
    const int choices = args.router.choices(args.experts);
    block.phase([&](int t) {
      for (int e = t; e < choices; e += kThreads) keys[e] = choice_key(args.router, scores, e);
    });
    uint64_t last = UINT64_MAX;
    for (int i = 0; i < args.router.chosen; ++i) {
      typename Block::template Each<uint64_t> best;
      block.each([&](int t) {
        uint64_t most = 0;
        for (int e = t; e < choices; e += kThreads) {
          const uint64_t rank = rank_key(keys[e], e);
          if (rank < last && rank > most) most = rank;
        }
        best[t] = most;
      });
      last = block.largest(best);
      block.each([&](int t) {
        if (t == 0) used[i] = ranked_value(last);
      });
    }
    block.phase([&](int t) {
      if (t == 0) write_shares(args.router, scores, args.experts, used, shares);
    });
  }
};

// ---- products -----------------------------------------------------------------------------------

// One product for each of `choices` pairs: an input, and an expert that it uses. In `product`, x, y
// and the factors of the end are those of the first pair, and `out` is the maximum over all
// experts.
template <typename Product>
struct ExpertArgs {
  Product product;
  const std::byte* base;
  const ExpertWeight* weights;  // [experts]
  const ExpertWeight* up;       // of products with two weights
  const int32_t* used;          // [choices]
  int choices;
  int of_input;    // how many pairs share a row of x
  int64_t blocks;  // of a pair
};

// Kernel computes one row. Its blocks for a pair do exactly what they do for one product alone.
// They skip an expert whose weight is in the form of another kernel.
template <typename Kernel>
struct ExpertProduct {
  using Args = ExpertArgs<typename Kernel::Args>;
  static constexpr int kThreads = Kernel::kThreads;
  static constexpr int kResident = 3;  // a product alone has room for more blocks

  static constexpr Launch launch(const Args& args) {
    return {.blocks = args.blocks * args.choices,
            .shared_bytes = Kernel::launch(args.product).shared_bytes};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const auto choice = static_cast<int>(block.index() / args.blocks);
    typename Kernel::Args product = args.product;
    const int expert = args.used[choice];
    const ExpertWeight weight = args.weights[expert];
    if (kIsBlockProduct<Kernel> != (weight.blocks != StoredType::kF32)) return;
    MatmulArgs& first = first_of(product);
    first.panels = args.base + weight.panels;
    first.bias = reinterpret_cast<const float*>(args.base + weight.bias);
    first.in = weight.in;
    first.out = weight.out;
    first.blocks = weight.blocks;
    if constexpr (kTwo) {
      product.up_panels = args.base + args.up[expert].panels;
      product.up_bias = reinterpret_cast<const float*>(args.base + args.up[expert].bias);
    }
    first.x += choice / args.of_input * first.x_stride;
    first.y += choice * first.y_stride;
    if (first.end.times != nullptr) first.end.times += choice * first.end.times_stride;
    // If an expert has fewer columns than `out`, the indices of its last blocks are past its last
    // row, so these blocks do nothing.
    block.count_from(static_cast<int>(choice * args.blocks));
    Kernel::run(block, product);
  }

 private:
  static constexpr bool kTwo = std::is_same_v<typename Kernel::Args, GluArgs>;

  RUNNEL_DEVICE static constexpr MatmulArgs& first_of(typename Kernel::Args& args) {
    if constexpr (kTwo) {
      return args.gate;
    } else {
      return args;
    }
  }
};

// ---- the sum ------------------------------------------------------------------------------------

struct ExpertSumArgs {
  const float* y;       // [rows * used, columns]
  const float* shares;  // [rows, used]
  int used, columns;
  float factor;
  float* out;
  int64_t out_stride;
};

// A block adds a run of columns of one row.
struct ExpertSumKernel {
  using Args = ExpertSumArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(int64_t rows, const Args& args) {
    return {.blocks = rows * parts(args), .shared_bytes = 0};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t row = block.index() / parts(args);
    const int first = static_cast<int>(block.index() % parts(args)) * kThreads;
    const float* y = args.y + row * args.used * args.columns;
    const float* shares = args.shares + row * args.used;
    block.each([&](int t) {
      const int column = first + t;
      if (column >= args.columns) return;
      float sum = 0.0F;
      for (int i = 0; i < args.used; ++i) {
        sum = std::fma(shares[i], y[int64_t{i} * args.columns + column], sum);
      }
      float& out = args.out[row * args.out_stride + column];
      out = std::fma(args.factor, sum, out);
    });
  }

 private:
  RUNNEL_DEVICE static constexpr int64_t parts(const Args& args) {
    return (args.columns + kThreads - 1) / kThreads;
  }
};

// ---- the launches -------------------------------------------------------------------------------

// Calls launch(Kernel(), args) for the products of all pairs of an input and an expert.
template <typename LaunchKernel>
void launch_experts(View x, const Experts& experts, const ExpertRoom& room,
                    const LaunchKernel& launch) {
  const int used = experts.router.used();
  const int inner = room.hidden.cols / used;
  const auto* const gate = static_cast<const ExpertWeight*>(experts.table);
  const ExpertWeight* const up = gate + experts.gate.size();
  const ExpertWeight* const down = up + experts.up.size();
  const auto multiply = [&]<typename Kernel, typename Args>(
                            Kernel, const Args& product, const ExpertWeight* weights,
                            const ExpertWeight* second, int of_input) {
    launch(ExpertProduct<Kernel>(),
           ExpertArgs<Args>{product, base_of(experts), weights, second, room.used.i32(),
                            x.rows * used, of_input, Kernel::launch(product).blocks});
  };
  MatmulArgs hidden = {};
  hidden.x = x.f32();
  hidden.x_stride = x.stride;
  hidden.rows = 1;
  hidden.out = inner;
  hidden.end.activation = experts.activation;
  hidden.y = room.hidden.f32();
  hidden.y_stride = inner;
  MatmulArgs wide = {};
  wide.x = room.hidden.f32();
  wide.x_stride = inner;
  wide.rows = 1;
  wide.out = x.cols;
  wide.y = room.wide.f32();
  wide.y_stride = x.cols;
  if (experts.up[0].precision == Precision::kBf16) {
    if (experts.gate.empty()) {
      multiply(MatmulBf16<1, 1>(), hidden, up, nullptr, used);
    } else {
      multiply(MatmulBf16<1, 2, WeightForm::kTwo>(), GluArgs{hidden, nullptr, nullptr}, gate, up,
               used);
    }
    multiply(MatmulBf16<1, 1>(), wide, down, nullptr, 1);
    return;
  }
  // With blocks, an expert that all inputs use may be stored in another way than the others.
  const auto multiply_by = [&](const MatmulArgs& product, std::span<const Weight> list,
                               const ExpertWeight* weights, int of_input) {
    const auto has = [&](Precision precision) {
      return std::ranges::any_of(list, [=](const Weight& w) { return w.precision == precision; });
    };
    if (has(Precision::kBlocks)) {
      multiply(BlockProduct<1, 1>(), product, weights, nullptr, of_input);
    }
    if (has(Precision::kFp32)) multiply(MatmulFp32<1>(), product, weights, nullptr, of_input);
  };
  if (!experts.gate.empty()) {
    multiply_by(hidden, experts.gate, gate, used);
    hidden.end = {Activation::kNone, room.hidden.f32(), nullptr, inner, 0};
  }
  multiply_by(hidden, experts.up, up, used);
  multiply_by(wide, experts.down, down, 1);
}

}  // namespace runnel::cuda
