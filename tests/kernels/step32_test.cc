// Checks the order of sums of bf16 products bit by bit. All instruction sets use the order of
// tiles, except avx512bf16, whose instruction has its own order.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace cpu {

const Kernels& emulated_amx_kernels();  // of emulated_tiles.cc

}  // namespace cpu

namespace {

float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

// A layer [in, out] and rows of inputs for it. All numbers are scaled by `scale`, so that sums of
// products come close to the smallest numbers or below them.
struct Layer {
  int rows, in, out;
  std::vector<float> weight, bias, x;

  Layer(int rows, int in, int out, float scale)
      : rows(rows),
        in(in),
        out(out),
        weight(random_floats(int64_t{in} * out, 1, scale)),
        bias(random_floats(out, 2, scale * scale)),
        x(random_floats(int64_t{rows} * in, 3, scale)) {
    for (float& w : weight) w = rounded_to_bf16(w);
  }

  std::vector<float> run(Backend& backend, Activation activation = Activation::kNone) const {
    const Weight packed =
        backend.pack({weight.data(), out, in}, {bias.data(), 1, out}, Precision::kBf16);
    Guarded from(rows, in, 3), to(rows, out, 1);
    from.fill(x);
    backend.matmul(from.view(), packed, activation, to.view());
    to.expect_guards("matmul");
    return to.values();
  }
  // Input k of row `row`, and its weight for output `col`; zeros after the last input.
  float input(int row, int k) const {
    return k < in ? flushed(rounded_to_bf16(flushed(x[static_cast<size_t>(row) * in + k]))) : 0.0F;
  }
  float factor(int col, int k) const {
    return k < in ? flushed(weight[static_cast<size_t>(col) * in + k]) : 0.0F;
  }
  // sum(row, column) for every output.
  template <typename F>
  std::vector<float> outputs(const F& sum) const {
    std::vector<float> all;
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < out; ++col) all.push_back(sum(row, col));
    }
    return all;
  }
};

// Each step of 32 inputs adds a chain over the even inputs plus a chain over the odd inputs.
std::vector<float> in_steps(const Layer& layer) {
  return layer.outputs([&](int row, int col) {
    float sum = flushed(layer.bias[col]);
    for (int step = 0; step < layer.in; step += 32) {
      float chain[2] = {};
      for (int k = step; k < step + 32; ++k) {
        chain[k % 2] = flushed(std::fma(layer.input(row, k), layer.factor(col, k), chain[k % 2]));
      }
      sum = flushed(sum + flushed(chain[0] + chain[1]));
    }
    return sum;
  });
}

// One chain that begins with the bias. The odd input of each pair comes first.
std::vector<float> in_pairs(const Layer& layer) {
  return layer.outputs([&](int row, int col) {
    float sum = flushed(layer.bias[col]);
    for (int pair = 0; pair < layer.in; pair += 2) {
      for (const int k : {pair + 1, pair}) {
        sum = flushed(std::fma(layer.input(row, k), layer.factor(col, k), sum));
      }
    }
    return sum;
  });
}

std::vector<float> expected(const Layer& layer, Isa isa) {
  return isa == Isa::kAvx512Bf16 ? in_pairs(layer) : in_steps(layer);
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

class Step32 : public KernelTest {};

TEST_P(Step32, HasTheBitsOfItsOrder) {
  for (const int in : {1, 2, 7, 31, 32, 33, 100, 256}) {
    for (const int out : {1, 30, 33, 64, 70}) {
      const Layer most(37, in, out, 1.0F);
      for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 32, 37}) {
        Layer layer = most;
        layer.rows = rows;
        layer.x.resize(static_cast<size_t>(rows) * in);
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(in) + " x " +
                     std::to_string(out));
        expect_same(layer.run(backend()), expected(layer, GetParam().isa));
      }
    }
  }
}

// Products, sums, biases, inputs and weights around 2^-126 and below it.
TEST_P(Step32, CountsDenormalsAsZero) {
  for (const float scale : {0x1p-60F, 0x1p-63F, 0x1p-64F, 0x1p-66F}) {
    const Layer layer(37, 70, 33, scale);
    expect_same(layer.run(backend()), expected(layer, GetParam().isa));
  }
  Layer layer(5, 70, 33, 1.0F);
  for (size_t i = 0; i < layer.x.size(); i += 2) layer.x[i] *= 0x1p-127F;
  for (size_t i = 0; i < layer.weight.size(); i += 3) {
    layer.weight[i] = rounded_to_bf16(layer.weight[i] * 0x1p-127F);
  }
  for (float& bias : layer.bias) bias *= 0x1p-127F;
  expect_same(layer.run(backend()), expected(layer, GetParam().isa));
}

// An input that is denormal before it is rounded, but not afterwards.
TEST_P(Step32, CountsAnInputAsZeroBeforeItIsRounded) {
  Layer layer(1, 1, 1, 1.0F);
  layer.bias = {0.0F};
  layer.weight = {0x1p100F};
  for (const float x : {0x1.fffffcp-127F, -0x1.fffffcp-127F}) {
    layer.x = {x};
    EXPECT_EQ(layer.run(backend()), std::vector<float>{0.0F});
  }
  layer.x = {0x1p-126F};
  EXPECT_EQ(layer.run(backend()), std::vector<float>{0x1p-26F});
}

TEST_P(Step32, PaddingZerosTakePart) {
  Layer layer(1, 1, 1, 1.0F);
  layer.bias = {-0.0F};
  layer.weight = {-1.0F};
  layer.x = {0.0F};
  expect_same(layer.run(backend()), expected(layer, GetParam().isa));
}

TEST_P(Step32, PassesInfinitiesAndNansThrough) {
  Layer layer(8, 66, 33, 1.0F);
  layer.x[3] = std::numeric_limits<float>::infinity();
  layer.x[66 + 64] = -std::numeric_limits<float>::infinity();
  layer.x[2 * 66 + 5] = std::numeric_limits<float>::quiet_NaN();
  layer.x[3 * 66 + 5] = 0x1.fffffep127F;  // rounds up to infinity
  layer.weight[7] = std::numeric_limits<float>::infinity();
  expect_same(layer.run(backend()), expected(layer, GetParam().isa));
}

// The code after a product has denormals again.
TEST_P(Step32, LeavesTheThreadAsItWas) {
  (void)Layer(5, 70, 33, 1.0F).run(backend(), Activation::kGelu);
  volatile float least = std::numeric_limits<float>::min();
  EXPECT_GT(least / 2, 0.0F);
}

// Vectors of every width, plain scalar code and tiles, if there are any, add in the same order.
TEST(Step32Forms, HaveTheSameBits) {
  const Layer layer(40, 300, 130, 1.0F);
  const std::vector<float> truth = in_steps(layer);
  for (const Isa isa : kIsas) {
    if (!isa_available(isa) || isa == Isa::kAvx512Bf16) continue;
    EXPECT_TRUE(same_bits(layer.run(*make_backend(isa, 2), Activation::kNone), truth))
        << isa_name(isa);
  }
}

#if defined(__x86_64__)
// The output of one product with these kernels, from panels [1, last).
std::vector<float> product(const cpu::Kernels& kernels, const Layer& layer, const Weight& packed,
                           const cpu::MatmulArgs& end, int last) {
  Guarded from(layer.rows, layer.in, 3), to(layer.rows, layer.out, 1);
  from.fill(layer.x);
  const int rows = (layer.rows + 15) / 16 * 16;
  std::vector<float> rounded(static_cast<size_t>(rows) * 32 * cpu::steps_of(layer.in));
  cpu::MatmulArgs args = end;
  args.x = rounded.data();
  args.panels = packed.panels.as<float>();
  args.bias = packed.bias.as<float>();
  args.in = layer.in;
  args.out = layer.out;
  args.y = to.row(0);
  args.y_stride = to.view().stride;
  kernels.round_rows(from.row(0), from.view().stride, layer.rows, layer.in, rounded.data());
  kernels.matmul_rounded(args, layer.rows, 1, last);
  to.expect_guards("matmul_rounded");
  return to.values();
}

// Tests the code for tiles on tiles in software: blocks, layouts, and the padding after the last
// row and column.
TEST(Step32Forms, TilesInSoftwareHaveTheBitsOfVectors) {
  if (!isa_available(Isa::kAvx512Bf16)) GTEST_SKIP() << "this machine has no avx512bf16";
  const auto backend = make_backend(Isa::kAvx512, 1);
  for (const auto& [in, out] : {std::pair{256, 96}, {33, 70}, {7, 33}, {100, 300}}) {
    for (const int rows : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 48, 49, 64, 70, 97}) {
      const Layer layer(rows, in, out, 1.0F);
      const Weight packed = backend->pack({layer.weight.data(), out, in},
                                          {layer.bias.data(), 1, out}, Precision::kBf16);
      const std::vector<float> more = random_floats(int64_t{rows} * out, 4);
      for (const Activation activation :
           {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
        for (const cpu::Matrix plus : {cpu::Matrix{}, cpu::Matrix{more.data(), out}}) {
          cpu::MatmulArgs end = {};
          end.activation = activation;
          end.plus = plus;
          const auto of = [&](const cpu::Kernels& kernels) {
            return product(kernels, layer, packed, end, (out + 31) / 32);
          };
          EXPECT_TRUE(same_bits(of(cpu::emulated_amx_kernels()), of(cpu::avx512_kernels())))
              << rows << " x " << in << " x " << out;
        }
      }
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Isas, Step32, testing::ValuesIn(all_isas()), setup_name);

}  // namespace
}  // namespace runnel
