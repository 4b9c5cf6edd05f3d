// A reader stops a sample early: the sample finishes as with a stop sequence, and its session keeps
// the sampled values.
#include <gtest/gtest.h>

#include "tests/engine/harness.h"

namespace runnel {
namespace {

constexpr ModelLimits kModel = {.slots = 4, .rows = 4, .values = 8, .steps = 1};

std::vector<int32_t> sample_values(const std::vector<int32_t>& known, uint32_t stream,
                                   size_t count) {
  return FakeModel::expected(fake_spec(), known, 1, stream, static_cast<int>(count));
}

// Runs turns until the first sample has `count` values.
void read_values(Harness& harness, const Reader& reader, size_t count) {
  for (int i = 0; i < 1000; ++i) {
    const auto values = reader.values.find(0);
    if (values != reader.values.end() && values->second.size() >= count) return;
    harness.turn();
  }
  FAIL() << "values come";
}

GenerateRequest request_at_once(int64_t count) {
  GenerateRequest request = request_of({1, 2}, count);
  request.delivery.max_values = 1;
  return request;
}

TEST(StoppedSample, FinishesAndTheOthersContinue) {
  Harness harness(fake_spec(), kModel);
  GenerateRequest request = request_at_once(40);
  request.samples = 2;
  const auto reader = harness.generate(request);
  read_values(harness, *reader, 5);
  reader->stream->stop(0);
  harness.run();
  ASSERT_EQ(reader->finished.size(), 2U);
  const Finished& stopped = reader->finished[0];
  EXPECT_EQ(stopped.sample, 0);
  EXPECT_EQ(stopped.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.sampled_values, std::ssize(reader->values[0]));
  EXPECT_LT(stopped.sampled_values, 10);
  EXPECT_EQ(reader->values[0], sample_values({1, 2}, 0, reader->values[0].size()));
  EXPECT_EQ(reader->finished[1].reason, FinishReason::kLength);
  EXPECT_EQ(reader->values[1], sample_values({1, 2}, 1, 40));
  EXPECT_TRUE(reader->end->ok());
  EXPECT_EQ(harness.engine->stats().sessions_free, 4);
}

TEST(StoppedSample, ValuesInFlightComeFirst) {
  Harness harness(fake_spec(), {.slots = 4, .rows = 4, .values = 8, .steps = 4, .launches = 2});
  const auto reader = harness.generate(request_at_once(400));
  read_values(harness, *reader, 5);
  reader->stream->stop(0);
  harness.run();
  ASSERT_EQ(reader->finished.size(), 1U);
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kStop);
  EXPECT_EQ(reader->finished[0].sampled_values, std::ssize(reader->values[0]));
  EXPECT_LT(reader->values[0].size(), 40U);
  EXPECT_EQ(reader->values[0], sample_values({1, 2}, 0, reader->values[0].size()));
}

TEST(StoppedSample, ItsSessionContinuesAfterTheLastValue) {
  Harness harness(fake_spec(), kModel);
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = request_at_once(40);
  request.session = "a";
  request.request_id = "call";
  const auto reader = harness.generate(request);
  read_values(harness, *reader, 3);
  reader->stream->stop(0);
  harness.run();
  ASSERT_EQ(reader->finished.size(), 1U);
  EXPECT_EQ(harness.get("a")->position, reader->finished[0].position);
  // A retry ends the same way.
  const auto again = harness.generate(request);
  harness.run();
  EXPECT_EQ(again->values, reader->values);
  ASSERT_EQ(again->finished.size(), 1U);
  EXPECT_EQ(again->finished[0].reason, FinishReason::kStop);
  std::vector<int32_t> known = {1, 2};
  known.insert(known.end(), reader->values[0].begin(), reader->values[0].end());
  GenerateRequest more = request_of({}, 6);
  more.session = "a";
  const auto rest = harness.generate(more);
  harness.run();
  EXPECT_EQ(rest->values[0], sample_values(known, 0, 6));
}

TEST(StoppedSample, AStopAfterTheEndChangesNothing) {
  Harness harness(fake_spec(), kModel);
  GenerateRequest request = request_at_once(30);
  request.samples = 2;
  const auto reader = harness.generate(request);
  read_values(harness, *reader, 3);
  reader->stream->stop(1);
  reader->stream->stop(1);
  harness.run();
  reader->stream->stop(0);
  harness.run();
  ASSERT_EQ(reader->finished.size(), 2U);
  EXPECT_EQ(reader->finished[1].reason, FinishReason::kLength);
  EXPECT_EQ(reader->values[0], sample_values({1, 2}, 0, 30));
}

}  // namespace
}  // namespace runnel
