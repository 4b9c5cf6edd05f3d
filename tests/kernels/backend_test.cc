#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

TEST(CpuOptions, NamesOfInstructionSets) {
  for (const Isa isa : kIsas) {
    const Result<Isa> parsed = parse_isa(isa_name(isa));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, isa);
  }
  const Result<Isa> bad = parse_isa("sse9\n");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(bad.status().message(),
            "isa is 'sse9?'; it must be portable, avx2, avx512, avx512bf16 or amx");
  EXPECT_LT(parse_isa(std::string(5000, 'x')).status().message().size(), 120U);
}

TEST(CpuOptions, BadThreadsAreRefused) {
  for (const int threads : {-1, 257, std::numeric_limits<int>::max()}) {
    const auto backend = make_cpu_backend({.isa = {}, .threads = threads});
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(backend.status().message(), "threads is " + std::to_string(threads) +
                                              "; it must be between 0 (one per core) and 256");
  }
}

TEST(CpuOptions, AnAbsentInstructionSetIsRefused) {
  for (const Isa isa : kIsas) {
    if (isa_available(isa)) continue;
    const auto backend = make_cpu_backend({.isa = isa});
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.status().code(), Code::kFailedPrecondition);
    EXPECT_NE(backend.status().message().find(isa_name(isa)), std::string::npos);
  }
}

class BackendTest : public KernelTest {};

// The bf16 instructions do not affect fp32, and tiles add in the same order as vectors.
TEST_P(BackendTest, TheNumericsIdNamesEverythingThatDecidesBits) {
  const std::string isa = isa_name(GetParam().isa);
  const std::string vectors = isa == "avx512bf16" || isa == "amx" ? "avx512" : isa;
  EXPECT_EQ(backend().numerics(Precision::kFp32), "cpu/" + vectors + "/fp32/step");
  EXPECT_EQ(backend().numerics(Precision::kBf16),
            isa == "avx512bf16" ? "cpu/avx512bf16/bf16/step" : "cpu/" + vectors + "/bf16/step32");
  EXPECT_EQ(backend().numerics(Precision::kInt8), "cpu/" + vectors + "/int8/step32");
  EXPECT_EQ(backend().numerics(Precision::kBlocks), "cpu/" + vectors + "/blocks/block32");
  EXPECT_EQ(backend().numerics(Precision::kSplit), "");
}

TEST_P(BackendTest, AllocationsAreZeroAndAligned) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{65}, int64_t{5} << 20}) {
    const Buffer buffer = backend().allocate(bytes, Memory::kDevice);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
}

TEST_P(BackendTest, TooLargeAnAllocationThrows) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_THROW((void)backend().allocate(int64_t{1} << 60, Memory::kDevice), std::bad_alloc);
#endif
  EXPECT_THROW((void)backend().allocate(std::numeric_limits<int64_t>::max(), Memory::kDevice),
               std::bad_alloc);
}

TEST_P(BackendTest, CopiesAndZeroes) {
  std::vector<std::byte> from(100);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i);
  std::vector<std::byte> to(120, std::byte{0xee});
  backend().copy({from.data(), 100}, {to.data() + 10, 100});
  EXPECT_EQ(std::memcmp(from.data(), to.data() + 10, 100), 0);
  EXPECT_EQ(to[9], std::byte{0xee});
  EXPECT_EQ(to[110], std::byte{0xee});
  backend().zero({to.data() + 20, 30});
  EXPECT_EQ(to[19], std::byte{9});
  for (int i = 20; i < 50; ++i) EXPECT_EQ(to[i], std::byte{0});
  EXPECT_EQ(to[50], std::byte{40});
  backend().copy({nullptr, 0}, {nullptr, 0});
  backend().zero({nullptr, 0});
}

TEST_P(BackendTest, PackPadsWithZeros) {
  const std::vector<float> weight = random_floats(3 * 5, 1);
  const std::vector<float> bias = random_floats(3, 2);
  const Weight packed =
      backend().pack({weight.data(), 3, 5}, {bias.data(), 1, 3}, Precision::kFp32);
  EXPECT_EQ(packed.in, 5);
  EXPECT_EQ(packed.out, 3);
  const int panel = static_cast<int>(packed.bias.bytes() / 4);
  for (int k = 0; k < 5; ++k) {
    for (int out = 0; out < panel; ++out) {
      EXPECT_EQ(packed.panels.as<float>()[k * panel + out], out < 3 ? weight[out * 5 + k] : 0.0F);
    }
  }
  for (int out = 0; out < panel; ++out) {
    EXPECT_EQ(packed.bias.as<float>()[out], out < 3 ? bias[out] : 0.0F);
  }
}

TEST_P(BackendTest, ABf16WeightStaysBf16InMemory) {
  const std::vector<uint16_t> weight = bf16_of(random_floats(64 * 32, 1));
  const HostTensor tensor = {weight.data(), 64, 32, DType::kBF16};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Weight packed = backend().pack(tensor, {}, precision);
    EXPECT_EQ(packed.precision, precision);
    EXPECT_EQ(packed.stored, DType::kBF16);
    EXPECT_EQ(packed.panels.bytes(), 64 * 32 * 2);
  }
}

using BackendDeathTest = KernelTest;

TEST_P(BackendDeathTest, ShapesThatDoNotFitStopTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::vector<float> weight(20, 1.0F);
  const Weight packed = backend().pack({weight.data(), 4, 5}, {}, Precision::kFp32);
  Guarded x(2, 6);
  Guarded out(2, 4);
  EXPECT_DEATH(backend().matmul(x.view(), packed, Activation::kNone, out.view()), "matmul");
  EXPECT_DEATH(
      backend().norm(x.view(), View{}, {x.view().top(1), x.view().top(1), 1e-5F}, out.view()),
      "norm");
  EXPECT_DEATH(backend().copy({nullptr, 4}, {nullptr, 5}), "copy");
}

INSTANTIATE_TEST_SUITE_P(Setups, BackendTest, testing::ValuesIn(all_setups()), setup_name);
INSTANTIATE_TEST_SUITE_P(Isas, BackendDeathTest, testing::ValuesIn(all_isas()), setup_name);

}  // namespace
}  // namespace runnel
