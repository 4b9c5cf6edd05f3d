#include "bench/timed_backend.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

constexpr int kValues = 12;

int64_t calls(const TimedBackend& backend, StepPart part) { return backend.spent(part).calls; }

// Samples the values of a sequence that starts with 1.
std::vector<int32_t> sampled(const Bundle& bundle, Backend& backend) {
  const auto model = make_model(bundle, backend, {.slots = 1, .rows = 1, .values = 1, .steps = 1});
  if (!model.ok()) return {};
  Control control;
  control.pending = 1;
  control.seed = 7;
  control.remaining = kValues;
  (*model)->set(0, control, true);
  std::vector<Emitted> emitted;
  for (int i = 0; i < kValues; ++i) {
    const Row row = {.slot = 0, .values = {}, .want = Want::kNext};
    EXPECT_TRUE((*model)->collect((*model)->submit({&row, 1}, 1), emitted).ok());
  }
  std::vector<int32_t> values;
  for (const Emitted& one : emitted) values.push_back(one.value);
  return values;
}

TEST(TimedBackendTest, CountsEveryOperationOfAStepAndChangesNone) {
  for (const Spec& spec : {small_image_spec(), small_symbol_spec()}) {
    const Bundle bundle = random_bundle(spec, 3);
    const auto plain = make_cpu_backend({});  // one thread runs so small a model
    ASSERT_TRUE(plain.ok());
    TimedBackend backend(**plain, spec);
    const std::vector<int32_t> values = sampled(bundle, backend);
    EXPECT_EQ(values.size(), kValues);
    EXPECT_EQ(values, sampled(bundle, **plain));

    // Each thread that shares an operation makes its own call.
    const int64_t threads = calls(backend, StepPart::kEmbed) / kValues;
    EXPECT_GE(threads, 1);
    EXPECT_NEAR(backend.threads(), static_cast<double>(threads), 0.01);
    const int64_t in_layers = threads * kValues * sizes_of(spec).layers;
    for (const StepPart part :
         {StepPart::kQkv, StepPart::kRecur, StepPart::kOut, StepPart::kFfn1, StepPart::kFfn2}) {
      EXPECT_EQ(calls(backend, part), in_layers) << step_part_name(part);
      EXPECT_GT(backend.spent(part).time.count(), 0) << step_part_name(part);
    }
    for (const StepPart part : {StepPart::kHead, StepPart::kSample}) {
      EXPECT_EQ(calls(backend, part), threads * kValues) << step_part_name(part);
    }
    EXPECT_EQ(calls(backend, StepPart::kNorm),
              2 * in_layers + (sizes_of(spec).final_norm ? threads * kValues : 0));
    EXPECT_EQ(calls(backend, StepPart::kOther), 0);
    backend.reset();
    EXPECT_EQ(calls(backend, StepPart::kQkv), 0);
  }
}

TEST(TimedBackendTest, CountsTheHeadSeparatelyInOtherFamilies) {
  const Spec spec = small_mamba2_spec();
  const auto plain = make_cpu_backend({std::nullopt, 1});
  ASSERT_TRUE(plain.ok());
  TimedBackend backend(**plain, spec);
  EXPECT_EQ(sampled(random_bundle(spec, 3), backend).size(), kValues);
  EXPECT_EQ(calls(backend, StepPart::kHead), kValues);
  EXPECT_EQ(calls(backend, StepPart::kProducts),
            kValues * 2 * std::get<Mamba2Spec>(spec.model).layers);
}

}  // namespace
}  // namespace runnel
