// The panels of weights have the same bytes with any number of threads.
#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr int kRows = 2101;  // panels of every width, and part of one
constexpr int kCols = 256;

std::vector<std::byte> contents_of(const Buffer& buffer) {
  return {buffer.data(), buffer.data() + buffer.bytes()};
}

// The panels, the scales and the bias, in this order.
std::vector<std::byte> packed(Isa isa, int threads, HostTensor weight, Precision precision) {
  const auto backend = make_cpu_backend({isa, threads});
  EXPECT_TRUE(backend.ok());
  const std::vector<float> bias = random_floats(weight.rows, 1);
  const Weight weights = (*backend)->pack(weight, {bias.data(), 1, weight.rows}, precision);
  std::vector<std::byte> all;
  for (const Buffer* const part : {&weights.panels, &weights.scales, &weights.bias}) {
    const std::vector<std::byte> bytes = contents_of(*part);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void expect_same_with_all_threads(HostTensor weight, Precision precision) {
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    const std::vector<std::byte> one = packed(isa, 1, weight, precision);
    for (const int threads : {2, 4}) {
      EXPECT_EQ(packed(isa, threads, weight, precision), one)
          << isa_name(isa) << ", " << threads << " threads, precision "
          << static_cast<int>(precision);
    }
  }
}

TEST(Pack, PlainNumbers) {
  const std::vector<float> numbers = random_floats(int64_t{kRows} * kCols, 2);
  const std::vector<uint16_t> halves = bf16_of(numbers);
  for (const int cols : {kCols, 129}) {  // 129: odd, and one word more than two slices
    const HostTensor fp32 = {numbers.data(), kRows, cols};
    const HostTensor bf16 = {halves.data(), kRows, cols, DType::kBF16};
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kInt8}) {
      expect_same_with_all_threads(fp32, precision);
      expect_same_with_all_threads(bf16, precision);
    }
  }
}

// Two threads pack about 4 million weights before they let others run.
TEST(Pack, InSeveralRounds) {
  const std::vector<float> numbers = random_floats(int64_t{kRows} * kRows, 4);
  expect_same_with_all_threads({numbers.data(), kRows, kRows}, Precision::kFp32);
}

TEST(Pack, Blocks) {
  std::vector<std::byte> data(static_cast<size_t>(kRows) * kCols * 34 / 32);
  std::mt19937 random(3);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (const StoredType type :
       {StoredType::kQ4_0, StoredType::kQ5_0, StoredType::kQ8_0, StoredType::kQ4K, StoredType::kQ5K,
        StoredType::kQ6K, StoredType::kIq4Nl}) {
    expect_same_with_all_threads({data.data(), kRows, kCols, DType::kF32, type},
                                 Precision::kBlocks);
  }
}

// Word k of output `out` of a panel is at [k][out].
TEST(Pack, WordsOfAPanelAreTransposed) {
  const int rows = 70, cols = 137;  // several slices, the last not of whole vectors
  const int words = (cols + 1) / 2;
  const int width = cpu::portable_kernels().panel;
  const std::vector<float> numbers = random_floats(int64_t{rows} * cols, 4);
  const std::vector<uint16_t> halves = bf16_of(numbers);
  const auto backend = make_cpu_backend({Isa::kPortable, 2});
  ASSERT_TRUE(backend.ok());
  const Weight fp32 = (*backend)->pack({numbers.data(), rows, cols}, {}, Precision::kFp32);
  const Weight bf16 =
      (*backend)->pack({halves.data(), rows, cols, DType::kBF16}, {}, Precision::kFp32);
  const auto place = [&](int out, int k, int each) {
    return (out / width * each + k) * width + out % width;
  };
  for (int out = 0; out < rows; ++out) {
    for (int k = 0; k < cols; ++k) {
      EXPECT_EQ(fp32.panels.as<float>()[place(out, k, cols)], numbers[out * cols + k]);
      EXPECT_EQ(bf16.panels.as<uint16_t>()[2 * place(out, k / 2, words) + k % 2],
                halves[out * cols + k]);
    }
    EXPECT_EQ(bf16.panels.as<uint16_t>()[2 * place(out, words - 1, words) + 1], 0)
        << "beside an odd last number";
  }
}

}  // namespace
}  // namespace runnel
