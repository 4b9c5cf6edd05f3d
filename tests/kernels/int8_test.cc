// Weights of int8: their rounding, and the bits of their products, which are the same on every
// instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/quantize.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace cpu {

const Kernels& emulated_amx_kernels();  // of emulated_tiles.cc

}  // namespace cpu

namespace {

using cpu::quantize;

float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

// A layer [in, out] and rows of inputs for it.
struct Layer {
  int rows, in, out;
  std::vector<float> weight, bias, x;

  Layer(int rows, int in, int out, float scale = 1.0F)
      : rows(rows),
        in(in),
        out(out),
        weight(random_floats(int64_t{in} * out, 1, scale)),
        bias(random_floats(out, 2, scale)),
        x(random_floats(int64_t{rows} * in, 3)) {}

  Weight pack(Backend& backend) const {
    return backend.pack({weight.data(), out, in}, {bias.data(), 1, out}, Precision::kInt8);
  }
  std::vector<float> run(Backend& backend, Activation activation = Activation::kNone) const {
    const Weight packed = pack(backend);
    Guarded from(rows, in, 3), to(rows, out, 1);
    from.fill(x);
    backend.matmul(from.view(), packed, activation, to.view());
    to.expect_guards("matmul");
    return to.values();
  }
  std::span<const float> weights_of(int col) const {
    return std::span(weight).subspan(static_cast<size_t>(col) * in, in);
  }
  float input(int row, int k) const {
    return k < in ? flushed(rounded_to_bf16(flushed(x[static_cast<size_t>(row) * in + k]))) : 0.0F;
  }
};

// From +0, each step of 32 inputs adds a chain over the even inputs plus a chain over the odd
// inputs. The sum is then multiplied by the scale, and the bias is added.
std::vector<float> in_steps(const Layer& layer) {
  std::vector<float> all(static_cast<size_t>(layer.rows) * layer.out);
  std::vector<int8_t> integers(layer.in);
  for (int col = 0; col < layer.out; ++col) {
    const float scale = quantize(layer.weights_of(col), integers.data());
    for (int row = 0; row < layer.rows; ++row) {
      float sum = 0.0F;
      for (int step = 0; step < layer.in; step += 32) {
        float chain[2] = {};
        for (int k = step; k < step + 32; ++k) {
          const float w = k < layer.in ? integers[k] : 0.0F;
          chain[k % 2] = flushed(std::fma(layer.input(row, k), w, chain[k % 2]));
        }
        sum = flushed(sum + flushed(chain[0] + chain[1]));
      }
      all[static_cast<size_t>(row) * layer.out + col] =
          flushed(flushed(sum * scale) + flushed(layer.bias[col]));
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

// ---- rounding -----------------------------------------------------------------------------------

TEST(Quantize, TakesTheNearestMultipleAndTiesToEven) {
  const std::vector<float> weights = {254.0F, -254.0F, 1.0F, 3.0F, 5.0F, -1.0F, -3.0F, 0.0F, 2.1F};
  std::vector<int8_t> integers(weights.size());
  EXPECT_EQ(quantize(weights, integers.data()), 2.0F);
  EXPECT_EQ(integers, (std::vector<int8_t>{127, -127, 0, 2, 2, 0, -2, 0, 1}));
}

// The error is at most half a step if numbers are normal, and no integer is beyond +-127.
TEST(Quantize, IsHalfAStepOffAtMost) {
  for (const float size : {0x1p-100F, 1e-7F, 1.0F, 3.3F, 1e30F, 0x1p126F}) {
    for (uint32_t seed = 0; seed < 50; ++seed) {
      const std::vector<float> weights = random_floats(257, seed, size / 8);
      std::vector<int8_t> integers(weights.size());
      const float scale = quantize(weights, integers.data());
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_LE(std::abs(int{integers[i]}), 127);
        ASSERT_NEAR(static_cast<double>(integers[i]) * scale, weights[i], double{scale} * 0.50001);
      }
    }
  }
}

TEST(Quantize, ChannelsTooSmallForAScaleAreZero) {
  for (const float size : {0.0F, -0.0F, 0x1p-149F, 0x1p-126F, -0x1.fbfffcp-120F}) {
    const std::vector<float> weights = {0.0F, size, -0.0F};
    std::vector<int8_t> integers(weights.size(), 1);
    EXPECT_EQ(quantize(weights, integers.data()), 0.0F) << size;
    EXPECT_EQ(integers, std::vector<int8_t>(3, 0)) << size;
  }
  std::vector<int8_t> integers(2);
  EXPECT_EQ(quantize(std::vector<float>{0x1.fcp-120F, 0.0F}, integers.data()), 0x1p-126F);
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(quantize(std::vector<float>{most, -most}, integers.data()), most / 127.0F);
  EXPECT_EQ(integers, (std::vector<int8_t>{127, -127}));
}

TEST(QuantizeDeathTest, RefusesNumbersThatAreNotFinite) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  int8_t integer = 0;
  for (const float x : {std::numeric_limits<float>::infinity(), NAN}) {
    EXPECT_DEATH((void)quantize({&x, 1}, &integer), "int8 are finite");
  }
}

// ---- products -----------------------------------------------------------------------------------

class Int8 : public KernelTest {};

TEST_P(Int8, HasTheBitsOfItsOrder) {
  for (const int in : {1, 2, 7, 31, 32, 33, 100, 256}) {
    for (const int out : {1, 30, 33, 64, 70}) {
      const Layer most(37, in, out);
      for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 32, 37}) {
        Layer layer = most;
        layer.rows = rows;
        layer.x.resize(static_cast<size_t>(rows) * in);
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(in) + " x " +
                     std::to_string(out));
        expect_same(layer.run(backend()), in_steps(layer));
      }
    }
  }
}

// The bound is half a step of each weight, 2^-8 of each input, and the rounding of sums.
TEST_P(Int8, DiffersFromExactProductsByRoundingOnly) {
  for (const int rows : {1, 3, 40}) {
    const Layer layer(rows, 300, 70);
    const std::vector<float> found = layer.run(backend());
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < layer.out; ++col) {
        const auto weights = layer.weights_of(col);
        const float step =
            std::abs(*std::ranges::max_element(weights, {}, [](float w) { return std::abs(w); })) /
            127.0F;
        double expected = layer.bias[col];
        double bound = 1e-4;
        for (int k = 0; k < layer.in; ++k) {
          const double x = layer.x[static_cast<size_t>(row) * layer.in + k];
          expected += x * weights[k];
          bound += std::abs(x) * (step * 0.502 + std::abs(weights[k]) * 0x1p-8);
        }
        ASSERT_NEAR(found[static_cast<size_t>(row) * layer.out + col], expected, bound);
      }
    }
  }
}

// Channels of zeros, of denormals and of the largest numbers, next to ordinary channels.
TEST_P(Int8, AChannelHasAScaleOfItsOwn) {
  Layer layer(19, 70, 33);
  const auto multiply = [&](int col, float by) {
    for (int k = 0; k < layer.in; ++k) layer.weight[static_cast<size_t>(col) * layer.in + k] *= by;
  };
  multiply(0, 0.0F);
  multiply(3, 0x1p-140F);
  multiply(4, 0x1p-121F);
  multiply(5, 0x1p-100F);
  multiply(32, 0x1p124F);
  const std::vector<float> found = layer.run(backend());
  expect_same(found, in_steps(layer));
  for (int row = 0; row < layer.rows; ++row) {
    for (const int col : {0, 3}) EXPECT_EQ(found[row * layer.out + col], layer.bias[col]);
  }
}

// Inputs, sums, scaled products and biases around 2^-126 and below it.
TEST_P(Int8, CountsDenormalsAsZero) {
  for (const float scale : {0x1p-60F, 0x1p-64F, 0x1p-115F}) {
    for (const float size : {0x1p-60F, 0x1p-66F, 0x1p-124F, 0x1p-127F}) {
      Layer layer(37, 70, 33, scale);
      for (float& x : layer.x) x *= size;
      for (float& bias : layer.bias) bias *= size;
      expect_same(layer.run(backend()), in_steps(layer));
    }
  }
}

TEST_P(Int8, PassesInfinitiesAndNansThrough) {
  Layer layer(8, 66, 33);
  layer.x[3] = std::numeric_limits<float>::infinity();
  layer.x[66 + 64] = -std::numeric_limits<float>::infinity();
  layer.x[2 * 66 + 5] = std::numeric_limits<float>::quiet_NaN();
  layer.x[3 * 66 + 5] = 0x1.fffffep127F;  // rounds up to infinity
  expect_same(layer.run(backend()), in_steps(layer));
}

// The bits depend on the values of the weights, not on their type. Each weight takes a byte.
TEST_P(Int8, TakesWeightsOfAnyTypeAndKeepsBytes) {
  Layer layer(5, 96, 64);
  for (float& w : layer.weight) w = rounded_to_bf16(w);
  const std::vector<uint16_t> halves = bf16_of(layer.weight);
  const Weight packed = backend().pack({halves.data(), 64, 96, DType::kBF16},
                                       {layer.bias.data(), 1, 64}, Precision::kInt8);
  EXPECT_EQ(packed.precision, Precision::kInt8);
  EXPECT_EQ(packed.stored, DType::kI8);
  EXPECT_EQ(packed.panels.bytes(), 64 * 96);
  Guarded from(5, 96), to(5, 64);
  from.fill(layer.x);
  backend().matmul(from.view(), packed, Activation::kNone, to.view());
  expect_same(to.values(), layer.run(backend()));
}

// Vectors of every width, plain scalar code and tiles, if there are any, add in the same order.
TEST(Int8Forms, HaveTheSameBits) {
  const Layer layer(70, 300, 130);
  const std::vector<float> truth = in_steps(layer);
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    EXPECT_TRUE(same_bits(layer.run(*make_backend(isa, 2)), truth)) << isa_name(isa);
  }
}

#if defined(__x86_64__)
// The output of one product with these kernels, from panel 1 on.
std::vector<float> product(const cpu::Kernels& kernels, const Layer& layer, const Weight& packed,
                           const cpu::MatmulArgs& end, int last) {
  Guarded from(layer.rows, layer.in, 3), to(layer.rows, layer.out, 1);
  from.fill(layer.x);
  const int rows = (layer.rows + 15) / 16 * 16;
  const size_t padded = size_t{32} * cpu::steps_of(layer.in);
  std::vector<float> rounded(padded * rows), room(padded * kernels.panel / 2);
  cpu::MatmulArgs args = end;
  args.x = rounded.data();
  args.panels = packed.panels.as<float>();
  args.bias = packed.bias.as<float>();
  args.scales = packed.scales.as<float>();
  args.room = room.data();
  args.in = layer.in;
  args.out = layer.out;
  args.y = to.row(0);
  args.y_stride = to.view().stride;
  kernels.round_int8(from.row(0), from.view().stride, layer.rows, layer.in, rounded.data());
  kernels.matmul_int8(args, layer.rows, 1, last);
  to.expect_guards("matmul_int8");
  return to.values();
}

// Tests the code for tiles on tiles in software: blocks, layouts, and the padding after the last
// row and column.
TEST(Int8Forms, TilesInSoftwareHaveTheBitsOfVectors) {
  if (!isa_available(Isa::kAvx512Bf16)) GTEST_SKIP() << "this machine has no avx512bf16";
  const auto backend = make_backend(Isa::kAvx512, 1);
  for (const auto& [in, out] : {std::pair{256, 96}, {33, 70}, {7, 33}, {100, 300}}) {
    for (const int rows : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 48, 49, 64, 70, 97}) {
      const Layer layer(rows, in, out);
      const Weight packed = layer.pack(*backend);
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

INSTANTIATE_TEST_SUITE_P(Isas, Int8, testing::ValuesIn(all_isas()), setup_name);

}  // namespace
}  // namespace runnel
