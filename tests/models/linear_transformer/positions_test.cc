// Sinusoids come from a table if the number of positions is limited, and are computed otherwise.

#include <gtest/gtest.h>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

HarnessRun generated(const Spec& spec) {
  constexpr int kCount = 20;
  const CpuModel made = make_cpu_model(random_bundle(spec, 5), {Isa::kPortable, 1},
                                       {.slots = 1, .rows = 1, .values = 8, .steps = 1});
  begin_sequence(*made.model, 0, 3);
  sample_from(*made.model, 0, 3, 0, 99, kCount);
  return generate(*made.model, 0, kCount);
}

TEST(Sinusoids, EqualATable) {
  Spec with_odd_columns = small_symbol_spec();
  sizes_of(with_odd_columns).combine = Combine::kConcat;
  sizes_of(with_odd_columns).value_width = 7;
  for (const Spec& endless : {small_symbol_spec(), with_odd_columns}) {
    Spec bounded = endless;
    bounded.positions = 30;
    EXPECT_EQ(generated(endless), generated(bounded));
  }
}

}  // namespace
}  // namespace runnel
