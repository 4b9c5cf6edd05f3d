#include "models/make_model.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

TEST(MakeModel, TooManySlotsForTheMemoryIsAnErrorThatSaysSo) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  Spec spec = small_image_spec();
  const auto model = make_model(random_bundle(spec, 1), **backend,
                                {.slots = 1 << 30, .rows = 1, .values = 1, .steps = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::kResourceExhausted);
  EXPECT_NE(model.status().message().find("lower the number of sessions"), std::string::npos);
}

}  // namespace
}  // namespace runnel
