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

TEST(MakeModel, HalfOfTheFreeMemoryIsForStatesWhereNobodySaysHowMany) {
  EXPECT_EQ(slots_that_fit(int64_t{1} << 40, 1000, 1), kMostUnasked);
  EXPECT_EQ(slots_that_fit(200'999, 1000, 1), 100);
  EXPECT_EQ(slots_that_fit(1999, 1000, 1), 1);
  EXPECT_EQ(slots_that_fit(0, 0, 1), 1);
  EXPECT_EQ(slots_that_fit(200'999, 7000, 7), 14 * 7);
  EXPECT_EQ(slots_that_fit(int64_t{1} << 40, 7000, 7), kMostUnasked * 7);
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  EXPECT_GT((*backend)->free_memory(), 0);
  const auto model = make_model(random_bundle(small_image_spec(), 1), **backend,
                                {.slots = 0, .rows = 1, .values = 1, .steps = 1});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->limits().slots, kMostUnasked);
  EXPECT_EQ((*model)->device(), DeviceKind::kCpu);
}

TEST(MakeModel, SizesThatTheBackendDoesNotTakeAreAnErrorThatSaysSo) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  Spec spec = small_mamba2_spec();
  std::get<Mamba2Spec>(spec.model).state_size = 1025;
  Bundle bundle = random_bundle(spec, 1);
  bundle.directory = "some/bundle";
  const auto model =
      make_model(bundle, **backend, {.slots = 1, .rows = 1, .values = 1, .steps = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(model.status().message().starts_with("some/bundle: ")) << model.status().message();
  EXPECT_NE(model.status().message().find("1024"), std::string::npos) << model.status().message();
}

}  // namespace
}  // namespace runnel
