#include "tools/bench/timed_backend.h"

#include <gtest/gtest.h>

#include "tests/models/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr ModelLimits kLimits = {.slots = 1, .rows = 1, .values = 1, .steps = 1};
constexpr int kValues = 12;

int64_t calls(const TimedBackend& backend, StepPart part) { return backend.spent(part).calls; }

TEST(TimedBackendTest, CountsEveryOperationOfAStepAndChangesNone) {
  for (const Spec& spec : {small_image_spec(), small_symbol_spec()}) {
    const Bundle bundle = random_bundle(spec, 3);
    const CpuModel plain = make_cpu_model(bundle, {}, kLimits);
    TimedBackend backend(*plain.backend, spec);
    const auto timed = make_linear_transformer(bundle, backend, kLimits);
    ASSERT_TRUE(timed.ok());
    sample_from(*plain.model, 0, 1, 0, 7, kValues);
    sample_from(**timed, 0, 1, 0, 7, kValues);
    backend.reset();
    EXPECT_EQ(generate(**timed, 0, kValues), generate(*plain.model, 0, kValues));

    const int64_t in_layers = int64_t{kValues} * spec.layers;
    for (const StepPart part :
         {StepPart::kQkv, StepPart::kRecur, StepPart::kOut, StepPart::kFfn1, StepPart::kFfn2}) {
      EXPECT_EQ(calls(backend, part), in_layers) << step_part_name(part);
      EXPECT_GT(backend.spent(part).time.count(), 0) << step_part_name(part);
    }
    for (const StepPart part : {StepPart::kEmbed, StepPart::kHead, StepPart::kSample}) {
      EXPECT_EQ(calls(backend, part), kValues) << step_part_name(part);
    }
    EXPECT_EQ(calls(backend, StepPart::kNorm), 2 * in_layers + (spec.final_norm ? kValues : 0));
    EXPECT_EQ(calls(backend, StepPart::kOther), 0);
    backend.reset();
    EXPECT_EQ(calls(backend, StepPart::kQkv), 0);
  }
}

}  // namespace
}  // namespace runnel
