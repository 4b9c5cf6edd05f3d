#include "models/check_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr ModelLimits kLimits = {.slots = 1, .rows = 1, .values = 1, .steps = 1};

// check_forward() for random weights, of which those whose name contains `of` are scaled.
Status checked(const Spec& spec, float scale, const std::string& of = "") {
  const auto backend = make_cpu_backend({});
  EXPECT_TRUE(backend.ok());
  TensorMap tensors = random_tensors(spec, 1);
  for (auto& [name, numbers] : tensors) {
    if (name.find(of) == std::string::npos || name.find(".pe") != std::string::npos) continue;
    for (float& number : numbers) number *= scale;
  }
  const TempDir directory;
  write_bundle(directory.path() + "/bundle", spec, tensors);
  const auto bundle = load_bundle(directory.path() + "/bundle");
  EXPECT_TRUE(bundle.ok());
  const auto model = make_model(*bundle, **backend, kLimits);
  EXPECT_TRUE(model.ok());
  return check_forward(**model);
}

TEST(CheckForward, WeightsOfUsualSizeAreAccepted) {
  for (const Spec& spec : {small_symbol_spec(), small_image_spec()}) {
    EXPECT_TRUE(checked(spec, 1).ok());
    EXPECT_TRUE(checked(spec, 10).ok());
  }
}

TEST(CheckForward, WeightsThatOverflowAreRefused) {
  for (const Spec& spec : {small_symbol_spec(), small_image_spec()}) {
    const Status status = checked(spec, 1e36F);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("the forward pass does not work with these weights"));
  }
}

// Only one tensor is large each time, so that a norm cannot hide it from the outputs unnoticed.
TEST(CheckForward, ALargeHeadOrLargeValuesAreRefused) {
  const Status head = checked(small_symbol_spec(), 1e36F, "predictor");
  EXPECT_THAT(head.message(), HasSubstr("log-probability of value"));
  EXPECT_EQ(checked(small_symbol_spec(), 1e38F, "value_projection").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace runnel
