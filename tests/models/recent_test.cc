// Tests the last values of a sequence, which its slot keeps.
#include <gtest/gtest.h>

#include "models/state/form.h"
#include "tests/kernels/host_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr ModelLimits kWithRecent = {.slots = 3, .rows = 2, .values = 64, .steps = 4, .recent = 6};

// On the CPU, or with the GPU's kernels on the host.
CpuModel make_on(DeviceKind device) {
  const Bundle bundle = random_bundle(small_symbol_spec(), 3);
  if (device == DeviceKind::kCpu) return make_cpu_model(bundle, {Isa::kPortable, 1}, kWithRecent);
  CpuModel made = {cuda::make_host_backend({}), nullptr};
  made.model = make_model(bundle, *made.backend, kWithRecent).value();
  return made;
}

class RecentValuesOn : public testing::TestWithParam<DeviceKind> {};

std::vector<int32_t> recent_of(Model& model, SlotId slot, int64_t position) {
  return recent_values(model.layout(), position, state_bytes(model, slot));
}

TEST_P(RecentValuesOn, AreTheLastInputsAndSamples) {
  for (const int chunk : {1, 3, 64}) {
    const CpuModel made = make_on(GetParam());
    Model& model = *made.model;
    EXPECT_EQ(model.limits().recent, 6);
    expect_parts_tile_the_state(model.layout());
    begin_sequence(model, 0, 4);
    EXPECT_EQ(recent_of(model, 0, 1), (std::vector<int32_t>{4}));
    feed(model, 0, {1, 2, 3, 5, 6, 7, 8}, chunk, Want::kNothing);
    EXPECT_EQ(recent_of(model, 0, 8), (std::vector<int32_t>{2, 3, 5, 6, 7, 8}));
    feed(model, 0, {9, 10}, chunk, Want::kScores);
    std::vector<int32_t> known = {3, 5, 6, 7, 8, 9, 10};
    sample_from(model, 0, 10, 9, 7, 4);
    const HarnessRun more = generate(model, 0, 4, 4);
    known.insert(known.end(), more.values.begin(), more.values.end());
    EXPECT_EQ(recent_of(model, 0, 14), std::vector<int32_t>(known.end() - 6, known.end()));
    model.copy(0, 2, 13);
    EXPECT_EQ(recent_of(model, 2, 14), recent_of(model, 0, 14));
    begin_sequence(model, 0, 1);
    EXPECT_EQ(recent_of(model, 0, 1), (std::vector<int32_t>{1})) << "a fresh sequence";
  }
}

TEST(RecentValues, TakeFourBytesEachOrNoneIfUnused) {
  const Bundle bundle = random_bundle(small_symbol_spec(), 3);
  const CpuModel with = make_cpu_model(bundle, {Isa::kPortable, 1}, kWithRecent);
  EXPECT_EQ(with.model->layout().state_bytes, bundle.spec.state_bytes() + 6 * 4);
  ModelLimits none = kWithRecent;
  none.recent = 0;
  const CpuModel without = make_cpu_model(bundle, {Isa::kPortable, 1}, none);
  EXPECT_EQ(without.model->layout().state_bytes, bundle.spec.state_bytes());
  const CpuModel image =
      make_cpu_model(random_bundle(small_image_spec(), 3), {Isa::kPortable, 1}, kWithRecent);
  EXPECT_EQ(image.model->limits().recent, 0);
  const CpuModel on_gpu = make_on(DeviceKind::kCuda);
  EXPECT_EQ(on_gpu.model->limits().recent, 6);
}

TEST_P(RecentValuesOn, NewPenaltiesReplaceTheEarlierOnesOfASlot) {
  const CpuModel made = make_on(GetParam());
  Model& model = *made.model;
  const auto run = [&](bool penalized) {
    begin_sequence(model, 0, 4);
    sample_from(model, 0, 4, 0, 7, 8);
    if (penalized) {
      Penalties banned;
      for (int32_t value = 0; value < 10; ++value) banned.logit_bias.push_back({value, -100.0F});
      model.penalize(0, {std::make_shared<const Penalties>(banned), 1});
    }
    return generate(model, 0, 8, 4);
  };
  const HarnessRun plain = run(false);
  EXPECT_EQ(run(true).values, std::vector<int32_t>(8, 10));
  EXPECT_EQ(run(false), plain);
}

INSTANTIATE_TEST_SUITE_P(, RecentValuesOn, testing::Values(DeviceKind::kCpu, DeviceKind::kCuda),
                         [](const auto& info) { return device_name(info.param); });

}  // namespace
}  // namespace runnel
