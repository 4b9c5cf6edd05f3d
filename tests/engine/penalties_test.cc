// Penalties through the engine. The values that penalties look at are part of a sequence's state,
// and move with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/metrics.h"
#include "engine/rewinds.h"
#include "engine/validate.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr int kRecent = 5;
constexpr ModelLimits kThreeSteps = {
    .slots = 6, .rows = 4, .values = 8, .steps = 3, .recent = kRecent};

const Penalties& penalties() {
  static const Penalties kPenalties = {1.2F, 0.5F, -0.25F, {{3, 1.0F}}};
  return kPenalties;
}

std::vector<int32_t> penalized_values(const std::vector<int32_t>& known, int count) {
  return FakeModel::expected(fake_spec(), known, 1, 0, count, &penalties(), kRecent);
}

GenerateRequest penalized(std::vector<int32_t> prompt, int64_t count) {
  GenerateRequest request = request_of(std::move(prompt), count);
  request.penalties = std::make_shared<const Penalties>(penalties());
  return request;
}

// Runs a call, on a session if one is named, and returns its sampled values.
std::vector<int32_t> sampled(Harness& harness, GenerateRequest request,
                             const std::string& session = "") {
  if (!session.empty()) request.session = session;
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reader->end && reader->end->ok()) << reader->end->to_string();
  return reader->values[0];
}

void append(std::vector<int32_t>& known, const std::vector<int32_t>& values) {
  known.insert(known.end(), values.begin(), values.end());
}

// Makes a session that reads four values and samples six. Returns all ten.
std::vector<int32_t> make_penalized(Harness& harness, const std::string& id) {
  EXPECT_TRUE(harness.create(id).ok());
  std::vector<int32_t> known = {1, 2, 3, 4};
  append(known, sampled(harness, penalized(known, 6), id));
  return known;
}

TEST(EnginePenalties, CountOnlySampledValuesOfTheCallButSeeEarlierValues) {
  Harness harness(fake_spec(), kThreeSteps);
  std::vector<int32_t> known = {1, 2};
  EXPECT_EQ(sampled(harness, penalized(known, 20)), penalized_values(known, 20));
  EXPECT_NE(sampled(harness, request_of(known, 20)), penalized_values(known, 20));
  // A second call on a session counts from zero, but still sees the values of the first.
  ASSERT_TRUE(harness.create("a").ok());
  for (int call = 0; call < 3; ++call) {
    const std::vector<int32_t> prompt(static_cast<size_t>(call), 9);
    append(known, prompt);
    GenerateRequest request = penalized(call == 0 ? known : prompt, 7);
    const auto values = sampled(harness, request, "a");
    EXPECT_EQ(values, penalized_values(known, 7)) << call;
    append(known, values);
  }
}

TEST(EnginePenalties, ACallWithoutPenaltiesClearsThoseOfEarlierCalls) {
  Harness harness(fake_spec(), kThreeSteps);
  std::vector<int32_t> known = make_penalized(harness, "a");
  EXPECT_EQ(sampled(harness, request_of({}, 5), "a"),
            FakeModel::expected(fake_spec(), known, 1, 0, 5));
}

TEST(EnginePenalties, EverySampleOfAPromptHasCountsOfItsOwn) {
  Harness harness(fake_spec(), kThreeSteps);
  GenerateRequest request = penalized({1, 2, 3}, 12);
  request.samples = 3;
  const auto reader = harness.generate(request);
  harness.run();
  for (int i = 0; i < 3; ++i) {
    const auto stream = static_cast<uint32_t>(i);
    EXPECT_EQ(reader->values[i],
              FakeModel::expected(fake_spec(), {1, 2, 3}, 1, stream, 12, &penalties(), kRecent));
  }
}

TEST(EnginePenalties, AForkAndAnImportContinueLikeTheSession) {
  Harness harness(fake_spec(), kThreeSteps);
  const std::vector<int32_t> known = make_penalized(harness, "a");
  ASSERT_TRUE(harness.fork("a", {"b"}).ok());
  const auto image = harness.export_state("a");
  ASSERT_TRUE(image.ok());
  ASSERT_TRUE(harness.import_state("c", *image).ok());
  for (const char* const id : {"a", "b", "c"}) {
    EXPECT_EQ(sampled(harness, penalized({}, 8), id), penalized_values(known, 8)) << id;
  }
}

TEST(EnginePenalties, ARewoundSessionSeesTheEarlierValues) {
  EngineOptions options;
  options.rewind_values = 12;
  options.rewind_every = 4;
  ModelLimits limits = kThreeSteps;
  limits.slots_of_session = static_cast<int>(1 + snapshots_of(options, limits.steps));
  limits.slots = 3 * limits.slots_of_session;
  Harness harness(fake_spec(), limits, options);
  std::vector<int32_t> known = make_penalized(harness, "a");
  for (const size_t position : {9UL, 6UL, 3UL}) {
    ASSERT_TRUE(harness.rewind("a", static_cast<int64_t>(position)).ok());
    known.resize(position);
    const auto values = sampled(harness, penalized({}, 7), "a");
    EXPECT_EQ(values, penalized_values(known, 7)) << position;
    append(known, values);
  }
}

TEST(EnginePenalties, ARetryCountsFromWhereTheFirstTryBegan) {
  for (const int turns : {1, 2, 3, 5}) {
    Harness harness(fake_spec(), {.slots = 3, .rows = 2, .values = 4, .steps = 1, .recent = 5});
    ASSERT_TRUE(harness.create("a").ok());
    GenerateRequest request = penalized({1, 2, 3, 4, 5}, 20);
    request.session = "a";
    request.request_id = "call";
    const auto first = harness.generate(request);
    for (int i = 0; i < turns; ++i) harness.turn();
    first->stream->cancel();
    harness.run();
    const auto again = harness.generate(request);
    harness.run();
    EXPECT_EQ(again->values[0], penalized_values({1, 2, 3, 4, 5}, 20)) << turns;
    GenerateRequest other = request;
    other.penalties.reset();
    const auto refused = harness.generate(other);
    harness.run();
    EXPECT_FALSE(refused->end->ok()) << "a retry is the same call";
  }
}

TEST(EnginePenalties, APromptWithACachedPrefixSeesItsOwnValues) {
  EngineOptions options;
  options.prefix_cache_bytes = 1 << 20;
  options.prefix_least = 2;
  Harness harness(fake_spec(), kThreeSteps, options);
  std::vector<int32_t> known = {1, 2, 3, 4, 5, 6, 7};
  append(known, sampled(harness, penalized(known, 9)));
  EXPECT_EQ(sampled(harness, penalized(known, 9)), penalized_values(known, 9));
  known.push_back(50);
  EXPECT_EQ(sampled(harness, penalized(known, 9)), penalized_values(known, 9));
  EXPECT_GT(harness.engine->metrics().prefix_hits.value(), 0);
}

TEST(ValidatePenalties, EachFaultIsNamedWithItsRange) {
  const auto refusal = [](const Penalties& given, int recent = 256) {
    return validate_penalties(given, fake_spec(), recent).message();
  };
  EXPECT_EQ(refusal(penalties()), "");
  EXPECT_EQ(refusal({.repetition = 0}),
            "sampling.repetition_penalty is 0; it must be above 0 and at most 1000");
  EXPECT_THAT(refusal({.repetition = NAN}), HasSubstr("sampling.repetition_penalty"));
  EXPECT_EQ(refusal({.frequency = 2.5F}),
            "sampling.frequency_penalty is 2.5; it must be between -2 and 2");
  EXPECT_EQ(refusal({.presence = -3}),
            "sampling.presence_penalty is -3; it must be between -2 and 2");
  EXPECT_EQ(refusal({.logit_bias = {{3, 101}}}),
            "sampling.logit_bias[3] is 101; it must be between -100 and 100");
  EXPECT_EQ(refusal({.logit_bias = {{100, 1}}}),
            "sampling.logit_bias[100] is for no value of model 'fake'; those are 0 to 99");
  EXPECT_EQ(refusal({.logit_bias = {{3, 1}, {3, 2}}}), "sampling.logit_bias names a value twice");
  std::vector<LogitBias> many(301);
  EXPECT_EQ(refusal({.logit_bias = many}),
            "sampling.logit_bias has 301 values; at most 300 are allowed");
  EXPECT_EQ(refusal({.presence = 1}, 0),
            "sampling.presence_penalty needs a sequence's last values, and this server keeps none: "
            "leave it out, or start the server with --recent-values above 0");
  EXPECT_EQ(refusal({.logit_bias = {{3, 1}}}, 0), "") << "it looks at no value";
}

TEST(ValidatePenalties, PenaltiesNeedACategoricalHead) {
  Spec digits = fake_spec();
  digits.head = {HeadKind::kMixtureOfLogistics, 256, 10};
  EXPECT_THAT(validate_penalties({.presence = 1}, digits, 0).message(),
              HasSubstr("sampling.presence_penalty needs a categorical head"));
}

TEST(EnginePenalties, AreRefusedBeforeTheCallWaits) {
  Harness harness;  // the model keeps no recent values
  const auto reader = harness.generate(penalized({1}, 5));
  ASSERT_TRUE(reader->end.has_value());
  EXPECT_EQ(reader->end->code(), Code::kFailedPrecondition);
  EXPECT_EQ(reader->end->field(), "sampling.repetition_penalty");
}

}  // namespace
}  // namespace runnel
