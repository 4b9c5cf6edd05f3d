// Golden outputs of published families by their own classes (make_published.py), on every
// instruction set.

#include <gtest/gtest.h>

#include <array>

#include "tests/golden/golden_files.h"
#include "tests/kernels/host_device.h"

namespace runnel {
namespace {

// Their classes compute in fp32, too.
constexpr double kTolerance = 5e-5;

constexpr std::array kNames = {"rwkv7_official",      "rwkv7_fla",         "rwkv7_fla_x",
                               "mamba2_state_spaces", "mamba2_norm_first", "mamba2_hugging_face",
                               "mamba2_fla"};

void expect_agreement(const char* name, Backend& backend) {
  const Bundle bundle = load(std::string(kGoldenFolder) + name);
  const Golden golden = load_golden(name, 1)[0];
  const Golden found = run_model(bundle, backend, golden.values);
  ASSERT_EQ(found.head.size(), golden.head.size());
  ASSERT_EQ(found.log_prob.size(), golden.log_prob.size());
  EXPECT_LT(worst_error(found.head, golden.head), kTolerance);
  EXPECT_LT(worst_error(found.log_prob, golden.log_prob), kTolerance);
}

class PublishedTest : public testing::TestWithParam<std::tuple<Isa, const char*>> {};

TEST_P(PublishedTest, AgreesWithItsOwnClasses) {
  const auto [isa, name] = GetParam();
  if (!isa_available(isa)) GTEST_SKIP() << "this machine has no " << isa_name(isa);
  const auto backend = make_cpu_backend({isa, 1});
  ASSERT_TRUE(backend.ok());
  expect_agreement(name, **backend);
}

TEST(Published, TheGpusKernelsAgree) {
  for (const char* const name : kNames) {
    SCOPED_TRACE(name);
    cuda::DeviceBackend<cuda::HostDevice> backend({}, cuda::ThreadOrder::kShuffled);
    expect_agreement(name, backend);
  }
}

INSTANTIATE_TEST_SUITE_P(, PublishedTest,
                         testing::Combine(testing::ValuesIn(kIsas), testing::ValuesIn(kNames)),
                         [](const auto& info) {
                           return std::string(isa_name(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace runnel
