// Running calls: values, stops, pauses and cancels, tested on Engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/engine/expected.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

TEST(Scheduler, AGenerationReturnsTheValuesOfTheModel) {
  Harness harness;
  const auto reader = harness.generate(request_of({3, 1, 4}, 5));
  harness.run();
  ASSERT_TRUE(reader->end.has_value());
  EXPECT_TRUE(reader->end->ok()) << reader->end->to_string();
  EXPECT_EQ(reader->values[0], expected({3, 1, 4}, 5));
  EXPECT_EQ(reader->positions[0], (std::vector<int64_t>{3, 4, 5, 6, 7}));
  ASSERT_TRUE(reader->started.has_value());
  EXPECT_EQ(reader->started->seed, 1U);
  EXPECT_EQ(reader->started->position, 0);
  EXPECT_EQ(reader->started->session, "");
  EXPECT_EQ(reader->started->numerics, "fake");
  ASSERT_EQ(reader->finished.size(), 1U);
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kLength);
  EXPECT_EQ(reader->finished[0].prompt_values, 3);
  EXPECT_EQ(reader->finished[0].sampled_values, 5);
  EXPECT_EQ(reader->finished[0].position, 8);
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, PromptLengthAndBudgetDoNotChangeValues) {
  for (int values = 1; values <= 9; ++values) {
    for (int length = 1; length <= 20; ++length) {
      Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = values, .steps = 3});
      std::vector<int32_t> prompt;
      for (int i = 0; i < length; ++i) prompt.push_back(i * 7 % 100);
      const auto reader = harness.generate(request_of(prompt, 4));
      harness.run();
      EXPECT_EQ(reader->values[0], expected(prompt, 4)) << values << " " << length;
    }
  }
}

TEST(Scheduler, ACallThatComesWhileOthersRunJoinsAtTheNextStep) {
  Harness harness;
  const auto first = harness.generate(request_of({1}, 100));
  for (int i = 0; i < 3; ++i) harness.turn();
  const auto second = harness.generate(request_of({2}, 100));
  harness.turn();
  EXPECT_EQ(harness.model->launches.back().rows.size(), 2U);
  EXPECT_EQ(second->values[0].size(), 1U);
  harness.run();
  EXPECT_EQ(first->values[0], expected({1}, 100));
  EXPECT_EQ(second->values[0], expected({2}, 100));
}

TEST(Scheduler, CallsTakeTurnsIfThereAreMoreThanRows) {
  Harness harness(fake_spec(), {.slots = 8, .rows = 3, .values = 4, .steps = 1});
  std::vector<std::shared_ptr<Reader>> readers;
  for (int i = 0; i < 8; ++i) readers.push_back(harness.generate(request_of({i, i + 1}, 20)));
  harness.run();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(readers[i]->values[0], expected({i, i + 1}, 20)) << i;
}

// The pace of prompts follows from the rows of a step, of which there are fewer than streams.
TEST(Scheduler, PromptsAreReadWhileMoreStreamsDecodeThanAStepHasRows) {
  constexpr ModelLimits kFewRows = {.slots = 16, .rows = 4, .values = 8, .steps = 1};
  EngineOptions options;
  options.prompt_slowdown = 4;
  Harness harness(fake_spec(), kFewRows, options);
  for (int i = 0; i < 10; ++i) harness.generate(request_of({i}, 1 << 20));
  for (int i = 0; i < 20; ++i) harness.turn();
  std::vector<std::shared_ptr<Reader>> prompts;
  for (int i = 0; i < 3; ++i) {  // a place in a step for each caller's prompts
    GenerateRequest request = request_of({1, 2, 3, 4}, 2);
    request.caller.account = "caller " + std::to_string(i);
    prompts.push_back(harness.generate(request));
  }
  for (int i = 0; i < 60; ++i) harness.turn();
  for (const auto& prompt : prompts) EXPECT_EQ(prompt->values[0], expected({1, 2, 3, 4}, 2));
}

TEST(Scheduler, ALongPromptOfOneCallerDoesNotDelayAnother) {
  Harness harness(fake_spec(), {.slots = 64, .rows = 2, .values = 16, .steps = 1});
  GenerateRequest large = request_of(std::vector<int32_t>(10'000, 1), 1);
  large.caller.account = "busy";
  for (int i = 0; i < 60; ++i) harness.generate(large);
  for (int i = 0; i < 20; ++i) harness.turn();
  GenerateRequest small = request_of({2, 3, 4}, 3);
  small.caller.account = "other";
  const auto first = harness.generate(small);
  for (int i = 0; i < 6; ++i) harness.turn();
  ASSERT_TRUE(first->end.has_value());
  EXPECT_EQ(first->values[0], expected({2, 3, 4}, 3));
  small.caller.account = "busy";  // waits for its turn within its account
  const auto own = harness.generate(small);
  for (int i = 0; i < 100; ++i) harness.turn();
  EXPECT_TRUE(own->end.has_value());
}

TEST(Scheduler, SamplesShareAPromptThatIsComputedOnce) {
  Harness harness;
  GenerateRequest request = request_of({5, 6, 7, 8}, 6, 42);
  request.samples = 3;
  const auto reader = harness.generate(request);
  harness.run();
  int prompt_inputs = 0;
  for (const auto& launch : harness.model->launches) {
    for (const int inputs : launch.inputs) prompt_inputs += inputs;
  }
  EXPECT_EQ(prompt_inputs,
            3);  // the fourth is pending, and goes in with the first step of each sample
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reader->values[i], expected({5, 6, 7, 8}, 6, 42, i)) << i;
  }
  EXPECT_EQ(reader->finished.size(), 3U);
  EXPECT_TRUE(reader->end->ok());
}

TEST(Scheduler, AFirstValueFromTheSpecIsEmittedAtPositionZero) {
  Harness harness(fake_spec(9, true));
  GenerateRequest request;
  request.seed = 3;
  request.samples = 2;
  const auto reader = harness.generate(request);
  harness.run();
  for (int i = 0; i < 2; ++i) {
    auto all = FakeModel::expected(harness.model->spec(), {7}, 3, i, 9);
    all.insert(all.begin(), 7);
    EXPECT_EQ(reader->values[i], all);
    EXPECT_EQ(reader->positions[i].front(), 0);
    EXPECT_EQ(reader->positions[i].back(), 9);
  }
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kEnd);
  EXPECT_EQ(reader->finished[0].sampled_values, 10);
}

TEST(Scheduler, AHistogramGivesEachSampleItsOwnFirstValue) {
  Spec spec = fake_spec(9, true);
  spec.begin->histogram.assign(100, 0.01F);
  Harness harness(spec);
  GenerateRequest request;
  request.seed = 3;
  request.samples = 8;
  const auto reader = harness.generate(request);
  harness.run();
  std::set<int32_t> firsts;
  for (int i = 0; i < 8; ++i) {
    firsts.insert(reader->values[i][0]);
    const auto rest = FakeModel::expected(spec, {reader->values[i][0]}, 3, i, 9);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), reader->values[i].begin() + 1));
  }
  EXPECT_GT(firsts.size(), 3U);
}

TEST(Scheduler, TheLastPositionEndsASequence) {
  Harness harness(fake_spec(5));
  const auto reader = harness.generate(request_of({1, 2}, 100));
  harness.run();
  EXPECT_EQ(reader->values[0].size(), 4U);  // six values in all
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kEnd);
  // If the prompt fills the sequence, no value can be sampled.
  const auto full = harness.generate(request_of({1, 2, 3, 4, 5, 6}, 100));
  harness.run();
  EXPECT_TRUE(full->values[0].empty());
  EXPECT_EQ(full->finished[0].reason, FinishReason::kEnd);
  EXPECT_TRUE(full->end->ok());
}

// A call that does not set max_values gets the limit.
TEST(Scheduler, ACallThatSetsNoMaxValuesGetsNoMoreThanTheLimit) {
  EngineOptions options;
  options.max_values = 10;
  Harness harness(fake_spec(100), Harness::default_limits(), options);
  GenerateRequest request = request_of({1, 2}, 0);
  request.max_values.reset();
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->values[0].size(), 10U);
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kLength);
  request.max_values = 11;
  EXPECT_EQ(harness.generate(request)->end->code(), Code::kInvalidArgument);
}

TEST(Scheduler, AStopSequenceEndsASampleWhenItIsComplete) {
  const auto all = expected({9}, 50);
  Harness harness;
  GenerateRequest request = request_of({9}, 50);
  request.stop = {{all[19], all[20]}, {all[30]}};
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kStop);
  EXPECT_EQ(reader->values[0], std::vector<int32_t>(all.begin(), all.begin() + 21));
}

TEST(Scheduler, AValueThatEndsTextsEndsASample) {
  const auto all = expected({9}, 50);
  Spec spec = fake_spec();
  spec.eos = {all[20], 100};
  const size_t first = std::ranges::find(all, all[20]) - all.begin();
  const size_t turn_end = std::ranges::find(all, all[2]) - all.begin();
  for (const int steps : {1, 4}) {
    Harness harness(spec, {.slots = 8, .rows = 8, .values = 16, .steps = steps});
    const auto reader = harness.generate(request_of({9}, 50));
    GenerateRequest ignoring = request_of({9}, 50);
    ignoring.ignore_eos = true;
    const auto whole = harness.generate(ignoring);
    GenerateRequest turn = request_of({9}, 50);
    turn.end_of_turn = all[2];
    const auto answer = harness.generate(turn);
    harness.run();
    EXPECT_EQ(reader->finished[0].reason, FinishReason::kEos);
    EXPECT_EQ(reader->values[0], std::vector<int32_t>(all.begin(), all.begin() + first + 1));
    EXPECT_EQ(answer->finished[0].reason, FinishReason::kEos);
    EXPECT_EQ(answer->values[0].size(), std::min(first, turn_end) + 1);
    EXPECT_EQ(whole->finished[0].reason, FinishReason::kLength);
    EXPECT_EQ(whole->values[0], all);
  }
}

// Some models begin texts with the value that also ends them.
TEST(Scheduler, TheFirstValueOfASequenceDoesNotEndIt) {
  Spec spec = fake_spec(0, true);
  spec.eos = {spec.begin->value};
  Harness harness(spec);
  const auto reader = harness.generate(request_of({}, 3));
  harness.run();
  EXPECT_EQ(reader->values[0].size(), 3U);
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kLength);
}

// Finds stop texts in the joined text: inside a value, across several, at the start and the end.
TEST(Scheduler, AStopTextEndsASampleAtTheValueThatCompletesIt) {
  const auto all = expected({9}, 50);
  const auto tokenizer = number_tokenizer();
  const auto text_of = [&](size_t first, size_t last) {
    std::string text;
    for (size_t i = first; i <= last; ++i) text += tokenizer->bytes(all[i]);
    return text;
  };
  const std::string over_three = text_of(10, 12);
  for (const auto& [stop, last] : {std::pair{text_of(20, 20), size_t{20}},
                                   {over_three.substr(2, over_three.size() - 3), 12},
                                   {text_of(0, 0), 0},
                                   {text_of(3, 40), 40}}) {
    // A search of the text sampled so far gives the first value that completes it.
    size_t first = 0;
    while (text_of(0, first).find(stop) == std::string::npos) ++first;
    ASSERT_LE(first, last);
    Harness harness(fake_spec(), {.slots = 8, .rows = 8, .values = 16, .steps = 4});
    GenerateRequest request = request_of({9}, 50);
    request.stop_text = {"no such text", stop};
    request.tokenizer = tokenizer;
    const auto reader = harness.generate(request);
    harness.run();
    EXPECT_EQ(reader->finished.at(0).reason, FinishReason::kStop);
    EXPECT_EQ(reader->values[0], std::vector<int32_t>(all.begin(), all.begin() + first + 1));
  }
}

// The reader gets the first value's text without its leading space.
TEST(Scheduler, AStopTextIsFoundInAFirstValueAsItIsWritten) {
  const Spec spec = fake_spec(0, true);
  TokenizerParts parts{.model = BytePairs({}), .bytes = {}, .drops_first_space = true};
  for (int value = 0; value < 100; ++value) parts.bytes.push_back(" " + std::to_string(value));
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(parts));
  const std::string first(tokenizer->first_bytes(spec.begin->value));
  for (const auto& [stop, count] : {std::pair{first + " ", 2U}, {" " + first + " ", 3U}}) {
    Harness harness(spec);
    GenerateRequest request = request_of({}, 3);
    request.tokenizer = tokenizer;
    request.stop_text = {stop};
    const auto reader = harness.generate(request);
    harness.run();
    EXPECT_EQ(reader->values[0].size(), count) << stop;
  }
}

// A stop text is searched in the sampled values, not in the prompt.
TEST(Scheduler, AStopTextIsNotFoundInThePrompt) {
  Harness harness;
  const auto all = expected({9, 11}, 20);
  GenerateRequest request = request_of({9, 11}, 20);
  request.tokenizer = number_tokenizer();
  request.stop_text = {"<11><" + std::to_string(all[0]) + ">"};
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->finished.at(0).reason, FinishReason::kLength);
  EXPECT_EQ(reader->values[0], all);
}

TEST(Scheduler, ManyStepsPerLaunchGiveTheSameValues) {
  Harness harness(fake_spec(), {.slots = 8, .rows = 8, .values = 16, .steps = 4});
  const auto a = harness.generate(request_of({1}, 10));
  const auto b = harness.generate(request_of({2}, 7));
  harness.run();
  EXPECT_EQ(a->values[0], expected({1}, 10));
  EXPECT_EQ(b->values[0], expected({2}, 7));
  EXPECT_EQ(harness.model->launches.back().steps, 4);
}

TEST(Scheduler, MaxValuesZeroFeedsWithoutGenerating) {
  Harness harness;
  GenerateRequest request = request_of({1, 2, 3}, 0);
  request.keep = true;
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reader->values.empty());
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kLength);
  EXPECT_EQ(reader->finished[0].position, 3);
  GenerateRequest next = request_of({}, 5);
  next.session = reader->started->session;
  const auto rest = harness.generate(next);
  harness.run();
  EXPECT_EQ(rest->values[0], expected({1, 2, 3}, 5));
}

TEST(Scheduler, ACancelFreesTheSlotWithinOneTurnAndTheSessionStays) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = request_of({1, 2, 3}, 50);
  request.session = "a";
  const auto kept = harness.generate(request);
  const auto other = harness.generate(request_of({5}, 50));
  for (int i = 0; i < 5; ++i) harness.turn();
  EXPECT_EQ(harness.engine->stats().sessions_free, 6);
  kept->stream->cancel();
  other->stream->cancel();
  harness.turn();
  EXPECT_EQ(other->end->code(), Code::kCancelled);
  EXPECT_EQ(harness.engine->stats().sessions_free, 7);
  std::vector<int32_t> known = {1, 2, 3};
  known.insert(known.end(), kept->values[0].begin(), kept->values[0].end());
  EXPECT_EQ(harness.get("a")->position, static_cast<int64_t>(known.size()));
  GenerateRequest go_on = request_of({}, 5);
  go_on.session = "a";
  const auto rest = harness.generate(go_on);
  harness.run();
  EXPECT_EQ(rest->values[0], expected(known, 5));
}

TEST(Scheduler, ACancelDuringAPromptKeepsTheValuesThatWereRead) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 4, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  std::vector<int32_t> prompt(40);
  for (int i = 0; i < 40; ++i) prompt[i] = i;
  GenerateRequest request = request_of(prompt, 5);
  request.session = "a";
  const auto reader = harness.generate(request);
  for (int i = 0; i < 3; ++i) harness.turn();
  reader->stream->cancel();
  harness.turn();
  const int64_t position = harness.get("a")->position;
  EXPECT_EQ(position, 13);  // the begin value, and three steps of four
  GenerateRequest go_on = request_of({prompt.begin() + position, prompt.end()}, 5);
  go_on.session = "a";
  const auto rest = harness.generate(go_on);
  harness.run();
  EXPECT_EQ(rest->values[0], expected(prompt, 5));
}

TEST(Scheduler, MaxTimeEndsASample) {
  Harness harness;
  GenerateRequest request = request_of({1}, 1000);
  request.max_time = 100 * kMs;
  harness.model->on_submit = [&] { harness.clock.advance(10 * kMs); };
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kTime);
  EXPECT_TRUE(reader->end->ok());
  EXPECT_EQ(reader->values[0].size(), 10U);
  EXPECT_EQ(reader->values[0], expected({1}, 10));
}

TEST(Scheduler, ASlowReaderPausesItsCallWithoutCostOrLoss) {
  Harness harness;
  GenerateRequest request = request_of({1}, 40);
  const auto slow = std::make_shared<Reader>();
  slow->stream = std::make_shared<TokenStream>(request.delivery, 8, 0, [] {});
  ASSERT_TRUE(harness.engine->generate(request, slow->stream).ok());
  const auto quick = harness.generate(request_of({2}, 30));
  harness.run();
  EXPECT_EQ(quick->values[0], expected({2}, 30));  // never paused
  const size_t launches = harness.model->launches.size();
  EXPECT_FALSE(harness.engine->turn());  // there is no work, so the engine does not spin
  EXPECT_EQ(harness.model->launches.size(), launches);
  for (int i = 0; i < 100 && !slow->end; ++i) {
    slow->read();
    harness.engine->turn();
  }
  EXPECT_EQ(slow->values[0], expected({1}, 40));
}

TEST(Scheduler, AReaderThatNeverReadsIsEndedAfterTheStallTimeout) {
  EngineOptions options;
  options.stall_timeout = std::chrono::seconds(5);
  Harness harness(fake_spec(), Harness::default_limits(), options);
  GenerateRequest request = request_of({1}, 40);
  request.keep = true;
  const auto slow = std::make_shared<Reader>();
  slow->stream = std::make_shared<TokenStream>(request.delivery, 8, 0, [] {});
  ASSERT_TRUE(harness.engine->generate(request, slow->stream).ok());
  harness.run();
  harness.clock.advance(std::chrono::seconds(4));
  harness.run();
  EXPECT_EQ(harness.engine->active_calls(), 1);
  harness.clock.advance(std::chrono::seconds(1));
  harness.run();
  EXPECT_EQ(harness.engine->active_calls(), 0);
  slow->read();
  EXPECT_EQ(slow->end->code(), Code::kAborted);
  EXPECT_EQ(slow->values[0].size(), 8U);
  EXPECT_EQ(harness.get(slow->started->session)->position, 9);  // the session stays
}

}  // namespace
}  // namespace runnel
