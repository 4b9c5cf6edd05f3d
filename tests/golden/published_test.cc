// Golden outputs of published families by their own classes (make_published.py), on every
// instruction set.

#include <gtest/gtest.h>

#include "tests/golden/golden_files.h"

namespace runnel {
namespace {

// Their classes compute in fp32, too.
constexpr double kTolerance = 5e-5;

class PublishedTest : public testing::TestWithParam<std::tuple<Isa, const char*>> {};

TEST_P(PublishedTest, AgreesWithItsOwnClasses) {
  const auto [isa, name] = GetParam();
  if (!isa_available(isa)) GTEST_SKIP() << "this machine has no " << isa_name(isa);
  const Bundle bundle = load(std::string(kGoldenFolder) + name);
  const Golden golden = load_golden(name, 1)[0];
  const Golden found = run_model(bundle, isa, golden.values);
  ASSERT_EQ(found.head.size(), golden.head.size());
  ASSERT_EQ(found.log_prob.size(), golden.log_prob.size());
  EXPECT_LT(worst_error(found.head, golden.head), kTolerance);
  EXPECT_LT(worst_error(found.log_prob, golden.log_prob), kTolerance);
  RecordProperty("worst", std::to_string(worst_error(found.head, golden.head)));
}

INSTANTIATE_TEST_SUITE_P(, PublishedTest,
                         testing::Combine(testing::ValuesIn(kIsas),
                                          testing::Values("rwkv7_official", "rwkv7_fla",
                                                          "rwkv7_fla_x", "mamba2_state_spaces",
                                                          "mamba2_norm_first",
                                                          "mamba2_hugging_face")),
                         [](const auto& info) {
                           return std::string(isa_name(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace runnel
