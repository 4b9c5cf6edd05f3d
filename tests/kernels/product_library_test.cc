// Products by cuBLASLt: opening the library, and that each product is planned before it runs. The
// tests of Matmul check the results.
#include "kernels/cuda/product_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/around_product.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/host_backend.h"

namespace runnel::cuda {
namespace {

using ::testing::HasSubstr;

class ProductLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto library = ProductLibrary::open({kFakeLibrary});
    if (library.status().code() == Code::kFailedPrecondition) {
      GTEST_SKIP() << library.status().message();
    }
    ASSERT_TRUE(library.ok()) << library.status().to_string();
    library_ = std::move(*library);
  }
  std::unique_ptr<ProductLibrary> library_;
};

TEST_F(ProductLibraryTest, AMissingLibraryIsReportedInOneSentence) {
  const auto none = ProductLibrary::open({"libno_such.so.1", "libno_such.so.2"});
  EXPECT_EQ(none.status().code(), Code::kNotFound);
  EXPECT_EQ(none.status().message(),
            "--kernels cublas needs NVIDIA's cuBLASLt, of which none is here (libno_such.so.1, "
            "libno_such.so.2): install it, name its directory in LD_LIBRARY_PATH, or use --kernels "
            "own");
}

TEST_F(ProductLibraryTest, RefusesALibraryWithoutItsFunctions) {
  const auto other = ProductLibrary::open({"libno_such.so.1", "libm.so.6"});
  EXPECT_EQ(other.status().code(), Code::kInternal);
  EXPECT_THAT(other.status().message(), HasSubstr("cuBLASLt has no cublasLtMatmul"));
}

TEST_F(ProductLibraryTest, TheHeadersVersionIsLookedForFirst) {
  const std::vector<std::string> files = ProductLibrary::usual_files();
  ASSERT_EQ(files.size(), 4U);
  EXPECT_THAT(files[0], HasSubstr("libcublasLt.so.1"));
  EXPECT_EQ(files[1], "/usr/local/cuda/lib64/" + files[0]);
}

TEST_F(ProductLibraryTest, UnplannedProductsAreRefused) {
  std::vector<float> memory(1024);
  ProductArgs args{};
  args.library = library_.get();
  args.x = args.weight = memory.data();
  args.bias = args.y = memory.data();
  args.in = args.out = 8;
  args.x_stride = args.weight_stride = args.y_stride = 8;
  args.rows = 3;
  EXPECT_EQ(library_->run(args, nullptr).message(),
            "no product of 3 x 8 by 8 x 8 in fp32 was planned");
  ASSERT_TRUE(library_->plan(args).ok());
  // Without a workspace the library fails: the message has its status and says what to do.
  EXPECT_THAT(
      library_->run(args, nullptr).message(),
      HasSubstr("cuBLASLt: it refused 3 x 8 by 8 x 8 in fp32 (status 7): use --kernels own"));
}

TEST_F(ProductLibraryTest, AWeightThatItCannotPlanFailsTheModelNotTheProcess) {
  ProductArgs args{};
  args.in = args.out = 8;
  args.weight_stride = 7;  // less than a row
  std::vector<float> bias(8);
  args.bias = bias.data();
  EXPECT_THAT(library_->plan(args).message(), HasSubstr("no algorithm for 1 x 8 by 8 x 8 in fp32"));
}

// More rows than one product takes, and numbers of rows around the borders of buckets.
TEST_F(ProductLibraryTest, MultipliesAnyNumberOfRows) {
  constexpr int kIn = 9;
  constexpr int kOut = 5;
  const std::vector<float> weight = random_floats(kIn * kOut, 1);
  const std::vector<float> bias = random_floats(kOut, 2);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const auto backend = make_host_backend({.library = true}, ThreadOrder::kShuffled);
    const Weight packed =
        backend->pack({weight.data(), kOut, kIn}, {bias.data(), 1, kOut}, precision);
    constexpr int kMost = 2 * ProductLibrary::kMostRows + 3;
    const std::vector<float> x = random_floats(int64_t{kMost} * kIn, 3);
    const auto run = [&](int rows) {
      Guarded y(rows, kOut, 2);
      backend->matmul({const_cast<float*>(x.data()), DType::kF32, rows, kIn, kIn}, packed,
                      Activation::kGelu, y.view());
      y.expect_guards("library");
      return y.values();
    };
    const std::vector<float> all = run(kMost);
    for (const int rows : {1, 2, 3, 4, 5, 8, 9, 4096, 4097, 8193}) {
      const std::vector<float> found = run(rows);
      EXPECT_TRUE(same_bits(found, {all.begin(), all.begin() + int64_t{rows} * kOut})) << rows;
    }
    EXPECT_TRUE(*backend->done(0));
  }
}

TEST_F(ProductLibraryTest, RunsInScriptsLikeKernels) {
  const auto backend = make_host_backend({.library = true}, ThreadOrder::kShuffled);
  const std::vector<float> weight = random_floats(64, 1);
  const Weight packed = backend->pack({weight.data(), 8, 8}, {}, Precision::kBf16);
  std::vector<float> x = random_floats(24, 2);
  std::vector<float> direct(24, NAN);
  std::vector<float> in_a_script(24, NAN);
  const View from = {x.data(), DType::kF32, 3, 8, 8};
  backend->matmul(from, packed, Activation::kRelu, {direct.data(), DType::kF32, 3, 8, 8});
  int32_t slot[] = {0, 1, 2};
  const int32_t first[] = {0, 1, 2, 3};
  backend->run({slot, first, 3}, 0, [&](Backend& lane, int, int) {
    lane.matmul(from, packed, Activation::kRelu, {in_a_script.data(), DType::kF32, 3, 8, 8});
    EXPECT_TRUE(std::isnan(in_a_script[0])) << "a batch only writes down";
  });
  EXPECT_TRUE(same_bits(direct, in_a_script));
}

TEST(PlainRows, HoldEveryWeightOnceAndZeroPadding) {
  const std::vector<float> weight = random_floats(7 * 11, 4);
  const auto fp32 = plain_rows({weight.data(), 7, 11}, Precision::kFp32);
  const auto bf16 = plain_rows({weight.data(), 7, 11}, Precision::kBf16);
  ASSERT_EQ(fp32.size(), 7U * 12);
  ASSERT_EQ(bf16.size(), 7U * 8);
  for (int out = 0; out < 7; ++out) {
    for (int in = 0; in < 16; ++in) {
      const float w = in < 11 ? weight[out * 11 + in] : 0.0F;
      if (in < 12) {
        EXPECT_EQ(std::bit_cast<float>(fp32[out * 12 + in]), w);
      }
      EXPECT_EQ(bf16[out * 8 + in / 2] >> in % 2 * 16 & 0xffff, bf16_bits(w));
    }
  }
}

}  // namespace
}  // namespace runnel::cuda
