// Compares golden outputs of published families, on every instruction set, from their own classes
// (make_published.py, copy_checkpoints.py) or from their equations (make_recurrences.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tests/golden/golden_files.h"
#include "tests/kernels/host_backend.h"
#include "tests/kernels/print.h"

namespace runnel {
namespace {

// The families' classes compute in fp32, too.
constexpr double kTolerance = 5e-5;

// Outputs of the families' own classes: make_published.py, copy_checkpoints.py.
constexpr std::array kClasses = {
    "rwkv7_official",      "rwkv7_fla",           "rwkv7_fla_x", "mamba2_state_spaces",
    "mamba2_norm_first",   "mamba2_hugging_face", "mamba2_fla",  "fla_mamba2",
    "transformers_mamba2", "state_spaces_mamba2", "fla_gla",     "fla_retnet",
    "fla_delta_net",       "fla_gated_deltanet",  "fla_kda",     "fla_hgrn2"};
// Outputs of the families' equations: make_recurrences.py.
constexpr std::array kEquations = {"gla_grouped",    "gla_plain",
                                   "retnet",         "delta_net",
                                   "delta_net_sum",  "delta_net_raw",
                                   "gated_deltanet", "kda",
                                   "hgrn2",          "rwkv6",
                                   "rwkv5",          "mamba1",
                                   "falcon_mamba",   "mamba1_state_spaces"};
// From make_hybrids.py, with the tolerance. The last five are outputs of transformers' classes.
struct HybridName {
  const char* name;
  double tolerance;
};
constexpr HybridName kHybrids[] = {{"hybrid_qwen3_5_image", 1e-4},
                                   {"hybrid_qwen3_next", 1e-4},
                                   {"hybrid_lfm2_bias", kTolerance},
                                   {"hybrid_granite_rope", kTolerance},
                                   {"hybrid_falcon_h1_norm", kTolerance},
                                   {"hybrid_nemotron_h", kTolerance},
                                   {"hybrid_qwen3_5", 2e-4},
                                   {"hybrid_lfm2", 1e-4},
                                   {"hybrid_granite", 1e-4},
                                   {"hybrid_granite_experts", 1e-4},
                                   {"hybrid_falcon_h1", 1e-6}};

std::vector<const char*> all_names() {
  std::vector<const char*> names(kClasses.begin(), kClasses.end());
  names.insert(names.end(), kEquations.begin(), kEquations.end());
  for (const HybridName& hybrid : kHybrids) names.push_back(hybrid.name);
  return names;
}

double tolerance_of(const char* name) {
  for (const HybridName& hybrid : kHybrids) {
    if (std::string_view(name) == hybrid.name) return hybrid.tolerance;
  }
  return kTolerance;
}

void expect_agreement(const char* name, Backend& backend) {
  const Bundle bundle = load(std::string(kGoldenFolder) + name);
  const Golden golden = load_golden(name, 1)[0];
  const Golden found = run_model(bundle, backend, golden.values);
  ASSERT_EQ(found.head.size(), golden.head.size());
  ASSERT_EQ(found.log_prob.size(), golden.log_prob.size());
  EXPECT_LT(worst_error(found.head, golden.head), tolerance_of(name));
  EXPECT_LT(worst_error(found.log_prob, golden.log_prob), std::max(tolerance_of(name), kTolerance));
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
  for (const char* const name : all_names()) {
    SCOPED_TRACE(name);
    const auto backend = cuda::make_host_backend({}, cuda::ThreadOrder::kShuffled);
    expect_agreement(name, *backend);
  }
}

INSTANTIATE_TEST_SUITE_P(, PublishedTest,
                         testing::Combine(testing::ValuesIn(kIsas), testing::ValuesIn(all_names())),
                         [](const auto& info) {
                           return std::string(isa_name(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace runnel
