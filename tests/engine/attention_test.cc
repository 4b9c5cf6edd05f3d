// Tests models with attention through the engine: the last position, and which pages moves copy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/engine/harness.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;
using testing::Matches;

std::vector<int32_t> some_values(int count) {
  std::vector<int32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i * i % 11;
  return values;
}

CpuModel make_hybrid(int64_t positions) {
  Spec spec = small_hybrid_spec(HybridStyle::kQwen35);
  spec.positions = positions;
  return make_cpu_model(random_bundle(spec, 3), {},
                        {.slots = 3, .rows = 3, .values = 64, .steps = 1});
}

TEST(Attention, APromptThatCannotFitIsRefusedBeforeAnythingIsComputed) {
  Spec spec = fake_spec(10);
  for (const int64_t most : {100, 10}) {
    spec.most_positions = most;
    Harness harness(spec);
    const auto reader = harness.generate(request_of(some_values(12), 1));
    harness.run();
    ASSERT_TRUE(reader->end);
    EXPECT_EQ(reader->end->code(), Code::kOutOfRange);
    EXPECT_THAT(reader->end->message(), HasSubstr("begin a new session with less"));
    EXPECT_EQ(Matches(HasSubstr("a larger --context"))(reader->end->message()), most > 10);
    EXPECT_TRUE(harness.model->launches.empty());
  }
}

TEST(Attention, AGenerationEndsAfterTheLastPosition) {
  CpuModel made = make_hybrid(70);
  Harness harness(std::move(made.model));
  const auto reader = harness.generate(request_of(some_values(60), 100));
  harness.run();
  ASSERT_TRUE(reader->end && reader->end->ok());
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kEnd);
  EXPECT_EQ(reader->values[0].size(), 11U) << "the last position's output is one more";
}

TEST(Attention, AForkCopiesNoPagesAfterThePosition) {
  CpuModel made = make_hybrid(300);
  Model& model = *made.model;
  Harness harness(std::move(made.model));
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = request_of(some_values(71), 0);
  request.session = "a";
  harness.generate(request);
  harness.run();
  const int64_t live = model.layout().live_bytes(70);
  EXPECT_EQ(live, model.layout().fixed_bytes() + 2 * model.layout().page_bytes);
  // Marks the unused bytes of the slot that the child will get.
  const std::vector<std::byte> others(model.layout().state_bytes - live, std::byte{0xab});
  model.write(1, live, others);
  ASSERT_TRUE(harness.fork("a", {"b"}).ok());
  const std::vector<std::byte> parent = state_bytes(model, 0);
  const std::vector<std::byte> child = state_bytes(model, 1);
  EXPECT_TRUE(std::equal(child.begin(), child.begin() + live, parent.begin()));
  EXPECT_TRUE(std::equal(child.begin() + live, child.end(), others.begin()));
}

TEST(Attention, ScoresAreTheLogProbabilitiesOfGeneration) {
  CpuModel made = make_hybrid(300);
  Harness harness(std::move(made.model));
  const std::vector<int32_t> prompt = some_values(60);
  const auto reader = harness.generate(request_of(prompt, 20));
  harness.run();
  std::vector<float> log_probs;
  const auto call = *harness.engine->start_score({}, {});
  for (const std::vector<int32_t>& values : {prompt, reader->values[0]}) {
    log_probs.clear();
    const Status status = harness.engine->score(call, values, [&](Result<ScoredChunk> scored) {
      ASSERT_TRUE(scored.ok()) << scored.status().to_string();
      log_probs = scored->log_probs;
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    harness.run();
  }
  EXPECT_EQ(log_probs, reader->log_probs[0]);
  harness.engine->end_score(call);
  harness.run();
}

}  // namespace
}  // namespace runnel
