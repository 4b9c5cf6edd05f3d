#include "cli/transcript.h"

#include <gmock/gmock.h>

#include <numbers>

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelView small_model() {
  ModelView model;
  model.vocabulary = 10;
  model.max_length = 6;
  model.has_begin = true;
  return model;
}

v1::GenerateResponse started(int64_t position) {
  v1::GenerateResponse event;
  event.mutable_started()->set_position(position);
  return event;
}

v1::GenerateResponse values(int sample, int64_t position, const std::vector<int32_t>& numbers) {
  v1::GenerateResponse event;
  v1::ValueRun& run = *event.mutable_values()->add_runs();
  run.set_sample(sample);
  run.set_position(position);
  for (const int32_t number : numbers) {
    run.add_values(number);
    run.add_log_probs(position == 0 && run.values_size() == 1 ? 0 : -std::numbers::ln2_v<float>);
  }
  return event;
}

v1::GenerateResponse finished(int sample) {
  v1::GenerateResponse event;
  event.mutable_finished()->set_sample(sample);
  event.mutable_finished()->set_reason(v1::Finished::END);
  return event;
}

TEST(Transcript, PutsSamplesTogether) {
  Transcript transcript(small_model(), 2);
  for (const auto& event : {started(0), values(1, 0, {0}), values(0, 0, {0, 1, 2}),
                            values(1, 1, {5}), finished(0), values(1, 2, {6, 7}), finished(1)}) {
    EXPECT_TRUE(transcript.add(event).ok());
  }
  EXPECT_TRUE(transcript.complete().ok());
  EXPECT_THAT(transcript.samples()[0].values, ElementsAre(0, 1, 2));
  EXPECT_THAT(transcript.samples()[1].values, ElementsAre(0, 5, 6, 7));
  EXPECT_EQ(transcript.values(), 7);
  EXPECT_NEAR(*transcript.bits_per_dim(), 1, 1e-6) << "the first value of each does not count";
}

TEST(Transcript, CountsEveryValueOfAContinuation) {
  Transcript transcript(small_model(), 1);
  ASSERT_TRUE(transcript.add(started(2)).ok());
  EXPECT_EQ(transcript.bits_per_dim(), std::nullopt);
  ASSERT_TRUE(transcript.add(values(0, 3, {4, 4})).ok());
  EXPECT_NEAR(*transcript.bits_per_dim(), 1, 1e-6);
  EXPECT_EQ(transcript.samples()[0].position, 3);
}

TEST(Transcript, AFirstValueAloneHasNoBitsPerDimension) {
  Transcript transcript(small_model(), 1);
  ASSERT_TRUE(transcript.add(started(0)).ok());
  ASSERT_TRUE(transcript.add(values(0, 0, {0})).ok());
  EXPECT_EQ(transcript.bits_per_dim(), std::nullopt);
}

v1::GenerateResponse queued() {
  v1::GenerateResponse event;
  event.mutable_queued()->set_place(1);
  return event;
}

TEST(Transcript, ACallMayWaitBeforeItStarts) {
  Transcript transcript(small_model(), 1);
  for (const auto& event : {queued(), queued(), started(0), finished(0)}) {
    EXPECT_TRUE(transcript.add(event).ok());
  }
  EXPECT_TRUE(transcript.complete().ok());
}

TEST(Transcript, RefusesEventsThatBreakTheContract) {
  const auto error = [](const std::vector<v1::GenerateResponse>& events) {
    Transcript transcript(small_model(), 1);
    for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_TRUE(transcript.add(events[i]).ok());
    const Status status = transcript.add(events.back());
    EXPECT_EQ(status.code(), Code::kInternal);
    return status.message();
  };
  EXPECT_THAT(error({values(0, 0, {1})}), HasSubstr("does not begin with Started"));
  EXPECT_THAT(error({started(0), started(0)}), HasSubstr("starts twice"));
  EXPECT_THAT(error({started(0), queued()}), HasSubstr("unknown kind"));
  EXPECT_THAT(error({started(0), values(1, 0, {1})}), HasSubstr("sample 1"));
  EXPECT_THAT(error({started(0), values(-1, 0, {1})}), HasSubstr("sample -1"));
  EXPECT_THAT(error({started(0), values(0, 0, {1}), values(0, 2, {1})}),
              HasSubstr("position 2, expected 1"));
  EXPECT_THAT(error({started(2), values(0, 1, {1})}), HasSubstr("position 1"));
  EXPECT_THAT(error({started(0), values(0, 0, {10})}), HasSubstr("does not have"));
  EXPECT_THAT(error({started(0), values(0, 0, {-1})}), HasSubstr("does not have"));
  EXPECT_THAT(error({started(0), values(0, 0, {1, 1, 1, 1, 1, 1, 1})}), HasSubstr("last position"));
  EXPECT_THAT(error({started(0), values(0, INT64_MAX, {1, 1})}), HasSubstr("last position"));
  EXPECT_THAT(error({started(0), finished(0), finished(0)}), HasSubstr("sample 0"));
  EXPECT_THAT(error({started(0), finished(0), values(0, 0, {1})}), HasSubstr("sample 0"));
  EXPECT_THAT(error({started(0), v1::GenerateResponse()}), HasSubstr("unknown kind"));
  v1::GenerateResponse bare = values(0, 0, {1});
  bare.mutable_values()->mutable_runs(0)->clear_log_probs();
  EXPECT_THAT(error({started(0), bare}), HasSubstr("without log-probabilities"));
}

TEST(Transcript, TheRateOfThePromptExcludesCachedValues) {
  Transcript transcript(small_model(), 1);
  v1::GenerateResponse end = finished(0);
  v1::Usage& usage = *end.mutable_finished()->mutable_usage();
  usage.set_prompt_values(100);
  usage.set_cached_values(60);
  usage.mutable_elapsed()->set_seconds(2);
  usage.mutable_first_value()->set_seconds(2);
  for (const auto& event : {started(0), values(0, 0, {0, 1}), end}) {
    EXPECT_TRUE(transcript.add(event).ok());
  }
  EXPECT_EQ(transcript.pace().cached_values, 60);
  EXPECT_EQ(transcript.pace().prompt_rate, 20);
}

TEST(Transcript, IsIncompleteUntilEverySampleHasFinished) {
  Transcript transcript(small_model(), 2);
  EXPECT_THAT(transcript.complete().message(), HasSubstr("without an event"));
  ASSERT_TRUE(transcript.add(started(0)).ok());
  ASSERT_TRUE(transcript.add(finished(1)).ok());
  EXPECT_THAT(transcript.complete().message(), HasSubstr("while sample 0 ran"));
}

}  // namespace
}  // namespace runnel
