#include "engine/generation.h"

#include <gtest/gtest.h>

#include <map>

namespace runnel {
namespace {

using P = GenerationPhase;
using E = GenerationEvent;

// Lists every allowed pair. All other pairs must be refused.
TEST(Generation, TheTableHasTheseTransitionsAndNoOthers) {
  const std::map<std::pair<P, E>, P> allowed = {
      {{P::kAdmitted, E::kResend}, P::kResending}, {{P::kAdmitted, E::kFeed}, P::kPrompting},
      {{P::kAdmitted, E::kSample}, P::kSampling},  {{P::kAdmitted, E::kEnd}, P::kEnded},
      {{P::kResending, E::kSample}, P::kSampling}, {{P::kResending, E::kEnd}, P::kEnded},
      {{P::kPrompting, E::kSample}, P::kSampling}, {{P::kPrompting, E::kEnd}, P::kEnded},
      {{P::kSampling, E::kEnd}, P::kEnded}};
  for (int phase = 0; phase <= static_cast<int>(P::kEnded); ++phase) {
    for (int event = 0; event <= static_cast<int>(E::kEnd); ++event) {
      const auto key = std::pair{static_cast<P>(phase), static_cast<E>(event)};
      const auto it = allowed.find(key);
      const auto expected = it == allowed.end() ? std::nullopt : std::optional(it->second);
      EXPECT_EQ(next_phase(key.first, key.second), expected) << phase << " " << event;
    }
  }
}

TEST(GenerationDeathTest, AnEventThatCannotHappenStopsTheProcess) {
  Generation generation;
  generation.apply(E::kSample);
  EXPECT_DEATH(generation.apply(E::kFeed), "table");
  generation.apply(E::kEnd);
  EXPECT_DEATH(generation.apply(E::kEnd), "table");
}

}  // namespace
}  // namespace runnel
