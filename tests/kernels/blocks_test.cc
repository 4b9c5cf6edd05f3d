// Compares products of weights in blocks with their definition, bit by bit.

#include "kernels/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr StoredType kTypes[] = {StoredType::kQ4_0, StoredType::kQ5_0, StoredType::kQ8_0,
                                 StoredType::kQ4K,  StoredType::kQ5K,  StoredType::kQ6K,
                                 StoredType::kIq4Nl};

float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

// Random blocks whose scales are finite. One in 16 is a denormal of half precision.
std::vector<std::byte> random_blocks(StoredType type, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto bytes = static_cast<size_t>(format_of(type).bytes);
  std::vector<std::byte> blocks(bytes * static_cast<size_t>(count));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  for (size_t at = 0; at < blocks.size(); at += bytes) {
    for (const size_t scale : {size_t{0}, size_t{2}, bytes - 2}) {
      const uint32_t exponent = random() % 16 == 0 ? 0 : 5 + random() % 6;
      const auto bits =
          static_cast<uint16_t>((random() & 0x8000) | exponent << 10 | (random() & 0x3FF));
      const bool has_two = type == StoredType::kQ4K || type == StoredType::kQ5K;
      const bool is_last = type == StoredType::kQ6K;
      if ((scale == 2 && !has_two) || is_last != (scale == bytes - 2)) continue;
      std::memcpy(blocks.data() + at + scale, &bits, sizeof(bits));
    }
  }
  return blocks;
}

// A layer with its weights in blocks, and rows of inputs for it.
struct Layer {
  StoredType type;
  int rows, in, out;
  std::vector<std::byte> weight;
  std::vector<float> bias, x;

  Layer(StoredType type, int rows, int in, int out)
      : type(type),
        rows(rows),
        in(in),
        out(out),
        weight(random_blocks(type, int64_t{in} * out / format_of(type).elements, 1)),
        bias(random_floats(out, 2)),
        x(random_floats(int64_t{rows} * in, 3)) {}

  // The outputs. The inputs begin in column `first` of a matrix: in column 1 they are aligned to 16
  // bytes, in column 0 they are not.
  std::vector<float> run(Backend& backend, Activation activation = Activation::kNone,
                         int first = 0) const {
    const Weight packed = backend.pack({weight.data(), out, in, DType::kF32, type},
                                       {bias.data(), 1, out}, Precision::kBlocks);
    Guarded from(rows, first + in, 3), to(rows, out, 1);
    for (int row = 0; row < rows; ++row) {
      std::copy_n(x.begin() + int64_t{row} * in, in, &from.at(row, first));
    }
    View inputs = from.view();
    inputs.data = &from.at(0, first);
    inputs.cols = in;
    backend.matmul(inputs, packed, activation, to.view());
    to.expect_guards("matmul");
    return to.values();
  }
  BlockRun block(int col, int k) const {
    return block_run(type, weight.data(), (int64_t{col} * in + k) / kRun);
  }
};

// The integers of a run of inputs, by the rule in the decision record.
struct Integers {
  int64_t v[kRun] = {};
  float power = 0.0F;

  explicit Integers(const float* x) {
    float most = 0.0F;
    bool finite = true;
    for (int i = 0; i < kRun; ++i) {
      finite = finite && std::isfinite(x[i]);
      most = std::max(most, std::abs(x[i]));
    }
    if (!finite) power = std::numeric_limits<float>::quiet_NaN();
    if (!finite || most < 0x1p-100F) return;
    const int e = std::ilogb(most);
    power = std::ldexp(1.0F, e - 13);
    for (int i = 0; i < kRun; ++i) {
      v[i] = std::llrint(std::ldexp(double{x[i]}, 13 - e));  // to nearest, ties to even
    }
  }
};

// The definition of the product, as plain loops.
std::vector<float> by_the_rule(const Layer& layer) {
  std::vector<float> all;
  for (int row = 0; row < layer.rows; ++row) {
    std::vector<Integers> inputs;
    for (int k = 0; k < layer.in; k += kRun) {
      inputs.emplace_back(layer.x.data() + int64_t{row} * layer.in + k);
    }
    for (int col = 0; col < layer.out; ++col) {
      float c = 0.0F;
      for (int k = 0; k < layer.in; k += kRun) {
        const Integers& x = inputs[static_cast<size_t>(k / kRun)];
        const BlockRun run = layer.block(col, k);
        const bool halves = layer.type == StoredType::kQ6K;
        const bool minimum = layer.type == StoredType::kQ4K || layer.type == StoredType::kQ5K;
        for (int half = 0; half < (halves ? 2 : 1); ++half) {
          int64_t sum = 0, sum_of_inputs = 0;
          for (int i = 0; i < kRun; ++i) {
            if (!halves || i / 16 == half) sum += run.q[i] * x.v[i];
            sum_of_inputs += x.v[i];
          }
          float t = flushed(flushed(static_cast<float>(sum) * x.power) * run.scale(half));
          if (minimum) {
            t = flushed(
                t - flushed(flushed(static_cast<float>(sum_of_inputs) * x.power) * run.least()));
          }
          c = flushed(c + t);
        }
      }
      all.push_back(flushed(c + flushed(layer.bias[static_cast<size_t>(col)])));
    }
  }
  return all;
}

// Expects equal bits. Any NaN equals any other.
void expect_same(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(wanted[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(wanted[i]))
        << i << ": " << found[i] << " for " << wanted[i];
  }
}

class Blocks : public KernelTest {};

TEST_P(Blocks, SumsMatchTheDocumentedRule) {
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    const auto least = static_cast<int>(format_of(type).elements);
    for (const auto& [rows, in, out] :
         {std::array{1, 512, 70}, std::array{5, 256, 33}, std::array{70, 256, 8},
          std::array{3, least, 1}, std::array{1, 2304, 9}, std::array{4, 1280, 17},
          std::array{8, 256, 33}, std::array{2, 256, 33}, std::array{7, 256, 33}}) {
      const Layer layer(type, rows, in, out);
      expect_same(layer.run(backend()), by_the_rule(layer));
    }
  }
}

// In each run, 1 is the largest input, so 2^-13 becomes the integer 1. The other inputs are halfway
// between two integers.
TEST_P(Blocks, RoundsTiesToEven) {
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    Layer layer(type, 1, 256, 40);
    for (int k = 0; k < layer.in; ++k) {
      const float tie = (static_cast<float>(k) + 0.5F) * 0x1p-13F;
      layer.x[static_cast<size_t>(k)] = k % kRun == 0 ? 1.0F : k % 2 == 0 ? tie : -tie;
    }
    expect_same(layer.run(backend()), by_the_rule(layer));
  }
}

// The smallest inputs that are not rounded to zero, and the largest that are. There is one in each
// run, in another place each time.
TEST_P(Blocks, RoundsToZeroBelowTheLeastInput) {
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    Layer layer(type, 4, 256, 40);
    std::ranges::fill(layer.x, 0.0F);
    std::ranges::fill(layer.bias, 0.0F);
    const float least[] = {0x1p-100F, -0x1p-100F, 0x1.fffffep-101F, -0x1.fffffep-101F};
    for (int row = 0; row < layer.rows; ++row) {
      for (int run = 0; run < layer.in / kRun; ++run) {
        layer.x[static_cast<size_t>(row * layer.in + run * kRun + 4 * run + row)] = least[row];
      }
    }
    const std::vector<float> found = layer.run(backend());
    expect_same(found, by_the_rule(layer));
    EXPECT_TRUE(std::any_of(found.begin(), found.begin() + 40, [](float y) { return y != 0.0F; }));
    EXPECT_TRUE(std::all_of(found.end() - 80, found.end(), [](float y) { return y == 0.0F; }));
  }
}

// A GPU has enough blocks for its largest tiles, and loads inputs 16 bytes at a time if it can.
TEST_P(Blocks, TheLargestTilesMatchTheDocumentedRule) {
  for (const StoredType type : {StoredType::kQ4K, StoredType::kQ6K}) {
    SCOPED_TRACE(format_of(type).name);
    const Layer layer(type, 5, 768, 4070);
    const std::vector<float> wanted = by_the_rule(layer);
    for (const int first : {0, 1}) {
      expect_same(layer.run(backend(), Activation::kNone, first), wanted);
    }
  }
}

// Inputs of all sizes, and some that are not finite: these spoil only their own row.
TEST_P(Blocks, TakesInputsOfAllMagnitudes) {
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    Layer layer(type, 6, 256, 40);
    const float sizes[] = {1e-45F, 0x1p-101F, 0x1p-99F, 0x1p20F, 0x1p126F, 1.0F};
    for (size_t i = 0; i < layer.x.size(); ++i) layer.x[i] *= sizes[i / 256];
    layer.x[5 * 256 + 40] = std::numeric_limits<float>::infinity();
    layer.x[5 * 256 + 90] = std::numeric_limits<float>::quiet_NaN();
    layer.x[2 * 256] = 3.5F;                   // next to inputs whose integers are 0
    std::fill_n(layer.x.begin() + 32, 32, 0);  // a run of zeros in the first row
    layer.x[3 * 256 + 7] = -0x1.ffffp22F;      // rounds up to 2^14
    const std::vector<float> found = layer.run(backend());
    expect_same(found, by_the_rule(layer));
    EXPECT_TRUE(std::all_of(found.end() - 40, found.end(), [](float y) { return std::isnan(y); }));
    EXPECT_TRUE(
        std::none_of(found.begin(), found.end() - 80, [](float y) { return std::isnan(y); }));
  }
}

// A row has the same bits whatever rows come with it.
TEST_P(Blocks, BitsDoNotDependOnTheBatch) {
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    const Layer all(type, 41, 256, 50);
    const std::vector<float> together = all.run(backend(), Activation::kSigmoid);
    for (const int row : {0, 7, 40}) {
      Layer one(type, 1, 256, 50);
      one.x.assign(all.x.begin() + row * 256, all.x.begin() + (row + 1) * 256);
      expect_same(one.run(backend(), Activation::kSigmoid),
                  {together.begin() + row * 50, together.begin() + (row + 1) * 50});
    }
  }
}

// Compared with exact products of the unrounded inputs and the blocks' values, in double.
TEST_P(Blocks, AreNearExactProducts) {
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    const Layer layer(type, 2, 1024, 32);
    const std::vector<float> found = layer.run(backend());
    std::vector<float> weights(size_t{1024} * 32);
    widen_blocks(type, layer.weight.data(), 0, weights);
    double error = 0.0, norm = 0.0;
    for (int row = 0; row < 2; ++row) {
      for (int col = 0; col < 32; ++col) {
        double sum = layer.bias[static_cast<size_t>(col)];
        for (int k = 0; k < 1024; ++k) {
          sum += double{layer.x[static_cast<size_t>(row * 1024 + k)]} *
                 weights[static_cast<size_t>(col * 1024 + k)];
        }
        error += std::pow(double{found[static_cast<size_t>(row * 32 + col)]} - sum, 2);
        norm += sum * sum;
      }
    }
    EXPECT_LT(std::sqrt(error / norm), 2e-4);
  }
}

// Weights that are not in blocks are fp32 in this precision.
TEST_P(Blocks, OtherWeightsAreFp32) {
  const std::vector<float> weight = random_floats(int64_t{40} * 30, 1);
  const std::vector<float> x = random_floats(40, 2);
  std::vector<float> found[2];
  for (const Precision precision : {Precision::kFp32, Precision::kBlocks}) {
    const Weight packed = backend().pack({weight.data(), 30, 40}, {nullptr, 1, 30}, precision);
    Guarded from(1, 40), to(1, 30);
    from.fill(x);
    backend().matmul(from.view(), packed, Activation::kNone, to.view());
    found[precision == Precision::kBlocks] = to.values();
  }
  EXPECT_TRUE(same_bits(found[0], found[1]));
}

#if defined(__x86_64__)
// The outputs of a layer with these kernels.
std::vector<float> product(const cpu::Kernels& kernels, const Layer& layer, const Weight& packed) {
  Guarded from(layer.rows, layer.in, 3), to(layer.rows, layer.out, 1);
  from.fill(layer.x);
  const int runs = cpu::steps_of(layer.in);
  std::vector<float> integers(static_cast<size_t>(layer.rows) * runs * cpu::kStepInputs);
  cpu::MatmulArgs args = {};
  args.x = integers.data();
  args.panels = packed.panels.as<float>();
  args.bias = packed.bias.as<float>();
  args.blocks = packed.blocks;
  args.in = layer.in;
  args.out = layer.out;
  args.y = to.row(0);
  args.y_stride = to.view().stride;
  kernels.round_blocks(from.row(0), from.view().stride, layer.rows, layer.in, integers.data());
  kernels.matmul_blocks(args, layer.rows, 0, (layer.out + 31) / 32);
  to.expect_guards("matmul_blocks");
  return to.values();
}

// AVX-512 with and without the byte instruction. Each machine uses only one of the two forms, so
// the tests above cover only that one.
TEST(BlockForms, TheInstructionForBytesChangesNoBit) {
  if (!__builtin_cpu_supports("avx512vnni")) GTEST_SKIP() << "this machine has no avx512vnni";
  const auto backend = make_backend(Isa::kAvx512, 1);
  for (const StoredType type : kTypes) {
    SCOPED_TRACE(format_of(type).name);
    for (int rows = 1; rows <= 9; ++rows) {
      const Layer layer(type, rows, 512, 70);
      const Weight packed = backend->pack({layer.weight.data(), 70, 512, DType::kF32, type},
                                          {layer.bias.data(), 1, 70}, Precision::kBlocks);
      const std::vector<float> found = product(cpu::avx512_kernels(), layer, packed);
      EXPECT_TRUE(same_bits(found, product(cpu::avx512vnni_kernels(), layer, packed)));
      expect_same(found, by_the_rule(layer));
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Setups, Blocks, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
