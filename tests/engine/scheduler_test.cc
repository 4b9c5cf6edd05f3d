// The scheduler through the engine's door: a fake model, a virtual clock, turns by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/fields.h"
#include "engine/account_usage.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr Duration kMs = std::chrono::milliseconds(1);

std::vector<int32_t> expected(const std::vector<int32_t>& known, int count, uint64_t seed = 1,
                              uint32_t stream = 0) {
  return FakeModel::expected(fake_spec(), known, seed, stream, count);
}

TEST(Scheduler, AGenerationGivesWhatTheModelGives) {
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

TEST(Scheduler, EveryPromptLengthAndBudgetGivesTheSame) {
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

TEST(Scheduler, MoreCallsThanRowsAllGetThereInTurn) {
  Harness harness(fake_spec(), {.slots = 8, .rows = 3, .values = 4, .steps = 1});
  std::vector<std::shared_ptr<Reader>> readers;
  for (int i = 0; i < 8; ++i) readers.push_back(harness.generate(request_of({i, i + 1}, 20)));
  harness.run();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(readers[i]->values[0], expected({i, i + 1}, 20)) << i;
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
  small.caller.account = "busy";  // waits for a turn among its own
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
  // A prompt that fills the sequence leaves nothing to sample.
  const auto full = harness.generate(request_of({1, 2, 3, 4, 5, 6}, 100));
  harness.run();
  EXPECT_TRUE(full->values[0].empty());
  EXPECT_EQ(full->finished[0].reason, FinishReason::kEnd);
  EXPECT_TRUE(full->end->ok());
}

// Unset, max_values is the limit, as set to the limit.
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

// Some models begin texts with the value that ends them.
TEST(Scheduler, TheFirstValueOfASequenceDoesNotEndIt) {
  Spec spec = fake_spec(0, true);
  spec.eos = {spec.begin->value};
  Harness harness(spec);
  const auto reader = harness.generate(request_of({}, 3));
  harness.run();
  EXPECT_EQ(reader->values[0].size(), 3U);
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kLength);
}

// In the text of the values, whatever their borders: within one, over several, at either's end.
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
    // The text itself, found in what has been drawn so far, says which value comes first.
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

// The reader is sent the text of a first value without its space.
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

// Only what this call samples counts, not what was given.
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

// --- Sessions ---

TEST(Scheduler, ASessionGoesOnWhereItStood) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  std::vector<int32_t> known;
  for (int round = 0; round < 6; ++round) {
    // With a prompt, and every other time without one.
    GenerateRequest request =
        request_of(round % 2 == 0 ? std::vector{round} : std::vector<int32_t>(), 3);
    request.session = "a";
    request.expected_position = static_cast<int64_t>(known.size());
    known.insert(known.end(), request.prompt.begin(), request.prompt.end());
    const auto reader = harness.generate(request);
    harness.run();
    ASSERT_TRUE(reader->end->ok()) << reader->end->to_string();
    const auto values = expected(known, 3);
    EXPECT_EQ(reader->values[0], values);
    known.insert(known.end(), values.begin(), values.end());
    EXPECT_EQ(harness.get("a")->position, static_cast<int64_t>(known.size()));
    EXPECT_EQ(harness.get("a")->state, SessionState::kIdle);
  }
  EXPECT_TRUE(harness.remove("a").ok());
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, WithoutKeepASessionIsLeftAsItWas) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest feed = request_of({1, 2}, 2);
  feed.session = "a";
  const auto fed = harness.generate(feed);
  harness.run();
  std::vector<int32_t> known = {1, 2};
  known.insert(known.end(), fed->values[0].begin(), fed->values[0].end());
  GenerateRequest branch = request_of({9}, 4);
  branch.session = "a";
  branch.samples = 2;
  const auto branched = harness.generate(branch);
  harness.run();
  auto with_nine = known;
  with_nine.push_back(9);
  EXPECT_EQ(branched->values[0], expected(with_nine, 4, 1, 0));
  EXPECT_EQ(branched->values[1], expected(with_nine, 4, 1, 1));
  EXPECT_EQ(branched->started->session, "");
  EXPECT_EQ(harness.get("a")->position, 4);
  GenerateRequest go_on = request_of({}, 4);
  go_on.session = "a";
  const auto after = harness.generate(go_on);
  harness.run();
  EXPECT_EQ(after->values[0], expected(known, 4));
}

TEST(Scheduler, RefusalsSayWhatIsWrong) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  EXPECT_EQ(harness.create("a").status().code(), Code::kAlreadyExists);
  EXPECT_EQ(harness.get("b").status().code(), Code::kNotFound);
  EXPECT_EQ(harness.remove("b").code(), Code::kNotFound);

  GenerateRequest request = request_of({1}, 50);
  request.session = "b";
  auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kNotFound);

  request.session = "a";
  request.prompt.clear();
  reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kInvalidArgument);

  request.prompt = {1};
  request.expected_position = 3;
  reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kAborted);
  EXPECT_THAT(reader->end->message(), HasSubstr("is at position 0, not at expected_position 3"));

  request.expected_position.reset();
  const auto running = harness.generate(request);
  harness.turn();
  reader = harness.generate(request);
  harness.turn();
  EXPECT_EQ(reader->end->code(), Code::kAborted);
  EXPECT_THAT(reader->end->message(), HasSubstr("busy"));
  EXPECT_EQ(harness.get("a")->state, SessionState::kGenerating);
  EXPECT_FALSE(running->end.has_value());
}

TEST(Scheduler, AFullPoolRefusesWithAHintAndNothingIsEvicted) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 8, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  const auto running = harness.generate(request_of({1}, 30));
  harness.turn();
  const auto refused = harness.generate(request_of({2}, 30));
  harness.turn();
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  EXPECT_TRUE(refused->end->retry_after().has_value());
  EXPECT_THAT(refused->end->message(), HasSubstr("0 of 2 sessions are free"));
  EXPECT_EQ(harness.create("b").status().code(), Code::kResourceExhausted);
  harness.run();
  EXPECT_EQ(running->values[0], expected({1}, 30));
  EXPECT_TRUE(harness.create("b").ok());
}

TEST(Scheduler, IdleSessionsEndAfterTheirTimeAndNoOthers) {
  EngineOptions options;
  options.idle_timeout = std::chrono::seconds(60);
  Harness harness(fake_spec(), Harness::default_limits(), options);
  ASSERT_TRUE(harness.create("a").ok());
  harness.clock.advance(std::chrono::seconds(59));
  harness.turn();
  EXPECT_TRUE(harness.get("a").ok());
  harness.clock.advance(std::chrono::seconds(3));
  harness.turn();
  EXPECT_EQ(harness.get("a").status().code(), Code::kNotFound);
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, CallsFromASessionKeepItAlive) {
  EngineOptions options;
  options.idle_timeout = std::chrono::seconds(60);
  Harness harness(fake_spec(), Harness::default_limits(), options);
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest branch = request_of({1}, 2);
  branch.session = "a";
  branch.keep = false;
  for (int i = 0; i < 4; ++i) {
    harness.clock.advance(std::chrono::seconds(40));
    const auto reader = harness.generate(branch);
    harness.run();
    ASSERT_TRUE(reader->end->ok()) << reader->end->to_string();
    EXPECT_EQ(harness.get("a")->idle, Duration(0));
    EXPECT_EQ(harness.get("a")->state, SessionState::kNew) << "no call has run on it";
  }
  harness.clock.advance(std::chrono::seconds(62));
  harness.turn();
  EXPECT_EQ(harness.get("a").status().code(), Code::kNotFound);
}

TEST(Scheduler, DeletingASessionAbortsTheCallThatRunsOnIt) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = request_of({1}, 50);
  request.session = "a";
  const auto reader = harness.generate(request);
  harness.turn();
  EXPECT_TRUE(harness.remove("a").ok());
  harness.turn();
  EXPECT_EQ(reader->end->code(), Code::kAborted);
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
  EXPECT_EQ(harness.engine->active_calls(), 0);
}

// --- Endings ---

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

TEST(Scheduler, ACancelWhileAPromptGoesInLeavesTheSessionThere) {
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
  EXPECT_EQ(position, 13);  // the first value, and three times four
  GenerateRequest go_on = request_of({prompt.begin() + position, prompt.end()}, 5);
  go_on.session = "a";
  const auto rest = harness.generate(go_on);
  harness.run();
  EXPECT_EQ(rest->values[0], expected(prompt, 5));
}

TEST(Scheduler, MaxTimeEndsASampleWithTime) {
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

TEST(Scheduler, ASlowReaderPausesCostsNothingAndLosesNothing) {
  Harness harness;
  GenerateRequest request = request_of({1}, 40);
  const auto slow = std::make_shared<Reader>();
  slow->stream = std::make_shared<TokenStream>(request.delivery, 8, 0, [] {});
  ASSERT_TRUE(harness.engine->generate(request, slow->stream).ok());
  const auto quick = harness.generate(request_of({2}, 30));
  harness.run();
  EXPECT_EQ(quick->values[0], expected({2}, 30));  // never held back
  const size_t launches = harness.model->launches.size();
  EXPECT_FALSE(harness.engine->turn());  // nothing to do: no busy waiting
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

TEST(Scheduler, ADeviceThatFailsEndsEveryCallAndRefusesNewOnes) {
  Harness harness(fake_spec(), {.slots = 4, .rows = 1, .values = 1, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  const auto stepped = harness.generate(request_of({1}, 10));
  const auto waiting = harness.generate(request_of({2}, 10));
  const auto scoring = *harness.engine->start_score({}, {});
  std::optional<Status> scored;
  ASSERT_TRUE(harness.engine
                  ->score(scoring, {1, 2, 3, 4},
                          [&](const Result<ScoredChunk>& chunk) { scored = chunk.status(); })
                  .ok());
  harness.turn();
  EXPECT_TRUE(harness.engine->failure().ok());
  harness.model->fails = [] { return true; };
  harness.turn();
  const std::string status =
      "UNAVAILABLE: the device of model 'fake' has failed: the fake device failed; the server "
      "stops, and its sessions are lost: call again once it is back, or another one";
  EXPECT_EQ(harness.engine->failure().to_string(), status);
  harness.run();
  EXPECT_EQ(stepped->end->to_string(), status);
  EXPECT_EQ(waiting->end->to_string(), status);
  EXPECT_EQ(scored->to_string(), status);
  EXPECT_EQ(harness.engine->active_calls(), 0);

  const size_t launches = harness.model->launches.size();
  EXPECT_EQ(harness.generate(request_of({1}, 10))->end->to_string(), status);
  EXPECT_EQ(harness.engine->start_score({}, {}).status().to_string(), status);
  EXPECT_EQ(harness.create("b").status().to_string(), status);
  harness.run();
  EXPECT_EQ(harness.model->launches.size(), launches) << "nothing is submitted to it";
}

TEST(Scheduler, OneCallerHoldsNoMoreStatesThanItsShare) {
  EngineOptions options;
  options.sessions_per_caller = 2;
  Harness harness(fake_spec(), {.slots = 16, .rows = 8, .values = 16, .steps = 1}, options);
  const auto create = [&](const Caller& caller) {
    Status status;
    harness.engine->create_session(
        caller, "", [&](const Result<SessionInfo>& info) { status = info.status(); });
    harness.turn();
    return status;
  };
  Caller here, there, named, large;
  here.account = "192.0.2.1";
  there.account = "192.0.2.2";
  named.name = named.account = "ada";
  large.name = large.account = "grace";
  large.limits.sessions = 3;
  large.usage = std::make_shared<AccountUsage>();
  for (const Caller& caller : {here, there, named}) {
    EXPECT_TRUE(create(caller).ok());
    EXPECT_TRUE(create(caller).ok());
    const Status refused = create(caller);
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.message(), testing::HasSubstr("limits.sessions_per_caller"));
    EXPECT_TRUE(refused.retry_after().has_value());
  }
  // The states of running calls count as well.
  GenerateRequest request = request_of({1}, 3);
  request.caller = here;
  harness.generate(request);
  harness.run();
  EXPECT_EQ(harness.readers.back()->end->code(), Code::kResourceExhausted);
  request.caller = large;
  request.samples = 2;
  harness.generate(request);
  harness.run();
  EXPECT_TRUE(harness.readers.back()->end->ok()) << "a caller's own limit comes first";
  request.samples = 4;
  harness.generate(request);
  harness.run();
  EXPECT_EQ(harness.readers.back()->end->code(), Code::kInvalidArgument);
  // What a call has held is free again, and a session's place once it has gone.
  EXPECT_EQ(large.usage->states(), 0);
  EXPECT_TRUE(create(large).ok());
  EXPECT_TRUE(create(large).ok());
}

TEST(Scheduler, DrainRefusesNewCallsAndLetsOthersEnd) {
  Harness harness;
  const auto running = harness.generate(request_of({1}, 20));
  harness.turn();
  harness.engine->drain();
  const auto refused = harness.generate(request_of({2}, 5));
  EXPECT_EQ(refused->end->code(), Code::kUnavailable);
  EXPECT_EQ(harness.create("x").status().code(), Code::kUnavailable);
  harness.run();
  EXPECT_EQ(running->values[0].size(), 20U);
  EXPECT_TRUE(running->end->ok());
}

TEST(Scheduler, EndAllEndsEveryCallWithItsStatus) {
  Harness harness;
  const auto a = harness.generate(request_of({1}, 20));
  const auto b = harness.generate(request_of({2}, 20));
  harness.turn();
  harness.engine->end_all({Code::kUnavailable, "going down"});
  harness.turn();
  for (const auto& reader : {a, b}) {
    ASSERT_TRUE(reader->end.has_value());
    EXPECT_EQ(reader->end->to_string(), "UNAVAILABLE: going down");
  }
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, MoreSamplesThanThereAreStatesAreNotWorthWaitingFor) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 8, .steps = 1});
  GenerateRequest request = request_of({1}, 3);
  request.samples = 3;
  const auto refused = harness.generate(request);
  harness.turn();
  EXPECT_EQ(refused->end->code(), Code::kInvalidArgument);
  EXPECT_FALSE(refused->end->retry_after().has_value());
  EXPECT_EQ(refused->end->field(), fields::kSamples);
  EXPECT_THAT(refused->end->message(),
              HasSubstr("samples asks for 3 states, and the server keeps 2 in all; ask for fewer"));
}

TEST(Scheduler, AFullMailboxRefusesAtOnce) {
  EngineOptions options;
  options.mailbox = 2;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  harness.generate(request_of({1}, 1));
  harness.generate(request_of({1}, 1));
  const auto refused = harness.generate(request_of({1}, 1));
  ASSERT_TRUE(refused->end.has_value());
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  EXPECT_TRUE(refused->end->retry_after().has_value());
}

TEST(Scheduler, AMailboxFullOfPromptsRefusesByTheirBytes) {
  EngineOptions options;
  options.mailbox_bytes = 1 << 20;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  const GenerateRequest large = request_of(std::vector<int32_t>(200'000, 1), 1);  // 800 kB
  const auto first = harness.generate(large);
  const auto refused = harness.generate(large);
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  const auto small = harness.generate(request_of({1}, 1));
  EXPECT_FALSE(small->end.has_value());
  harness.turn();
  EXPECT_FALSE(harness.generate(large)->end.has_value());
}

TEST(Scheduler, AMailboxFullOfPagesDoesNotHoldUpAGeneration) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  const auto running = harness.generate(request_of({1}, 1000));
  harness.turn();
  int answered = 0;
  for (int i = 0; i < 1000; ++i) {
    harness.engine->list_sessions("", "", 1000, [&](const Result<SessionPage>& page) {
      EXPECT_EQ(page->sessions.size(), 1U);
      ++answered;
    });
  }
  for (int turns = 1; answered < 1000; ++turns) {
    const int before = answered;
    const size_t launches = harness.model->launches.size();
    harness.turn();
    EXPECT_GT(answered, before);
    EXPECT_LE(answered - before, 10);
    ASSERT_EQ(harness.model->launches.size(), launches + 1);
  }
}

// --- Score ---

class ScoreTest : public testing::Test {
 protected:
  Result<ScoredChunk> score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values) {
    std::optional<Result<ScoredChunk>> result;
    const Status status = harness_.engine->score(
        call, std::move(values), [&](Result<ScoredChunk> r) { result = std::move(r); });
    if (!status.ok()) return status;
    harness_.run();
    return *result;
  }

  Harness harness_;
};

TEST_F(ScoreTest, EveryValueButTheFirstIsScoredWhateverTheChunks) {
  std::vector<int32_t> values(50);
  for (int i = 0; i < 50; ++i) values[i] = i * 13 % 100;
  for (const size_t chunk : {1, 2, 7, 50}) {
    const auto call = *harness_.engine->start_score({}, {});
    std::vector<float> log_probs;
    for (size_t at = 0; at < values.size(); at += chunk) {
      const size_t end = std::min(values.size(), at + chunk);
      const auto scored = score(call, {values.begin() + at, values.begin() + end});
      ASSERT_TRUE(scored.ok()) << scored.status().to_string();
      EXPECT_EQ(scored->position, static_cast<int64_t>(std::max<size_t>(at, 1)));
      log_probs.insert(log_probs.end(), scored->log_probs.begin(), scored->log_probs.end());
    }
    ASSERT_EQ(log_probs.size(), 49U);
    for (size_t i = 1; i < 50; ++i) {
      EXPECT_EQ(log_probs[i - 1], FakeModel::expected_log_prob(values, i));
    }
    harness_.engine->end_score(call);
    harness_.run();
    EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
  }
}

TEST_F(ScoreTest, TheMostLikelyValuesComeWhereTheyAreAskedFor) {
  const auto call = *harness_.engine->start_score({}, {}, false, false, Duration(0), 2);
  const auto scored = score(call, {1, 2, 3});
  ASSERT_TRUE(scored.ok()) << scored.status().to_string();
  ASSERT_EQ(scored->log_probs.size(), 2U);
  EXPECT_EQ(scored->top_log_probs, 2);
  ASSERT_EQ(scored->top.size(), 4U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GE(scored->top[2 * i].log_prob, scored->top[2 * i + 1].log_prob);
    EXPECT_GE(scored->top[2 * i].log_prob, scored->log_probs[i]);
  }
  EXPECT_EQ(harness_.engine->start_score({}, {}, false, false, Duration(0), 21).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreTest, ASessionThatKeepsTheValuesGoesOnBehindThem) {
  ASSERT_TRUE(harness_.create("a").ok());
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true);
  EXPECT_EQ(score(call, {1, 2})->log_probs.size(), 1U);
  const auto scored = score(call, {3, 4});
  EXPECT_THAT(scored->log_probs,
              testing::ElementsAre(FakeModel::expected_log_prob({1, 2, 3}, 2),
                                   FakeModel::expected_log_prob({1, 2, 3, 4}, 3)));
  EXPECT_EQ(harness_.get("a")->state, SessionState::kPrompting);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 7) << "it needs no state beside the session's";
  harness_.engine->end_score(call);
  harness_.run();
  EXPECT_EQ(harness_.get("a")->position, 4);
  GenerateRequest request = request_of({}, 10);
  request.session = "a";
  const auto reader = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(reader->values[0], FakeModel::expected(fake_spec(), {1, 2, 3, 4}, 1, 0, 10));
  EXPECT_EQ(harness_.engine->start_score({}, {}, false, true).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreTest, ValuesAreKeptOnlyWhereTheCallerExpectsTheSession) {
  ASSERT_TRUE(harness_.create("a").ok());
  const auto call_at = [&](int64_t position) {
    const Origin origin = {.session = "a", .state = {}, .expected_position = position};
    return *harness_.engine->start_score({}, origin, false, true);
  };
  const auto call = call_at(0);
  ASSERT_TRUE(score(call, {1, 2}).ok());
  harness_.engine->end_score(call);
  harness_.run();
  const Status refused = score(call_at(0), {1, 2}).status();
  EXPECT_EQ(refused.code(), Code::kAborted);
  EXPECT_THAT(refused.message(), HasSubstr("is at position 2, not at expected_position 0"));
  EXPECT_EQ(harness_.get("a")->position, 2);
  EXPECT_TRUE(score(call_at(2), {1, 2}).ok());
}

TEST_F(ScoreTest, ACallInASessionThatIsDeletedEnds) {
  ASSERT_TRUE(harness_.create("a").ok());
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true);
  ASSERT_TRUE(score(call, {1, 2}).ok());
  EXPECT_TRUE(harness_.remove("a").ok());
  EXPECT_EQ(score(call, {3}).status(), Status(Code::kAborted, "session 'a' was deleted"));
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

// What came of the session's last call would be sent again, and not what came since.
TEST_F(ScoreTest, ARetryDoesNotGoOnBehindValuesThatWereKept) {
  ASSERT_TRUE(harness_.create("a").ok());
  GenerateRequest request = request_of({1, 2}, 5);
  request.session = "a";
  request.request_id = "r";
  request.expected_position = 0;
  harness_.generate(request);
  harness_.run();
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true);
  ASSERT_TRUE(score(call, {3}).ok());
  harness_.engine->end_score(call);
  harness_.run();
  const auto retry = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(retry->end->code(), Code::kAborted);
  EXPECT_EQ(harness_.get("a")->position, 8);
}

TEST_F(ScoreTest, ASessionIsScoredFromAndNotChanged) {
  GenerateRequest request = request_of({1, 2, 3}, 0);
  ASSERT_TRUE(harness_.create("a").ok());
  request.session = "a";
  harness_.generate(request);
  harness_.run();
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}});
  const auto scored = score(call, {4, 5});
  ASSERT_TRUE(scored.ok());
  EXPECT_EQ(scored->position, 3);
  EXPECT_EQ(scored->log_probs, (std::vector{FakeModel::expected_log_prob({1, 2, 3, 4, 5}, 3),
                                            FakeModel::expected_log_prob({1, 2, 3, 4, 5}, 4)}));
  EXPECT_EQ(harness_.get("a")->position, 3);
}

TEST_F(ScoreTest, CallsFromASessionKeepItAlive) {
  ASSERT_TRUE(harness_.create("a").ok());
  for (int i = 0; i < 4; ++i) {
    harness_.clock.advance(std::chrono::minutes(40));
    const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}});
    ASSERT_TRUE(score(call, {4, 5}).ok());
    harness_.engine->end_score(call);
    EXPECT_EQ(harness_.get("a")->idle, Duration(0));
    EXPECT_EQ(harness_.get("a")->state, SessionState::kNew);
  }
}

TEST_F(ScoreTest, FaultsAreNamed) {
  auto call = *harness_.engine->start_score({}, {.session = "nobody", .state = {}});
  EXPECT_EQ(score(call, {1}).status().code(), Code::kNotFound);
  call = *harness_.engine->start_score({}, {});
  EXPECT_EQ(score(call, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(score(call, {100}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(harness_.engine->start_score({}, {.session = "a b", .state = {}}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreTest, CancelledWhileAChunkWaitsItStillEndsOnce) {
  const auto call = *harness_.engine->start_score({}, {});
  int ends = 0;
  ASSERT_TRUE(harness_.engine
                  ->score(call, std::vector<int32_t>(100, 1),
                          [&](Result<ScoredChunk> r) {
                            ++ends;
                            EXPECT_EQ(r.status().code(), Code::kCancelled);
                          })
                  .ok());
  harness_.turn();
  harness_.engine->end_score(call);
  harness_.run();
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

// Once admitted, a call does not end because others fill the mailbox.
TEST_F(ScoreTest, AnAdmittedCallGoesOnWhenTheMailboxIsFull) {
  EngineOptions options;
  options.mailbox = 1;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  const auto call = *harness.engine->start_score({}, {});
  int answers = 0;
  const auto give = [&] {
    return harness.engine->score(call, {1, 2}, [&](const Result<ScoredChunk>& scored) {
      EXPECT_TRUE(scored.ok());
      ++answers;
    });
  };
  ASSERT_TRUE(give().ok());
  harness.run();
  harness.generate(request_of({1}, 1));
  EXPECT_EQ(harness.generate(request_of({1}, 1))->end->code(), Code::kResourceExhausted);
  const Status given = give();
  EXPECT_TRUE(given.ok()) << given.to_string();
  const auto other = *harness.engine->start_score({}, {});
  EXPECT_EQ(harness.engine->score(other, {1}, [](const Result<ScoredChunk>&) {}).code(),
            Code::kResourceExhausted);
  harness.run();
  EXPECT_EQ(answers, 2);
}

// A message now and then must not hold a slot without end.
TEST_F(ScoreTest, ACallThatMostlyWaitsEndsAfterTheIdleTimeout) {
  const auto call = *harness_.engine->start_score({}, {});
  Duration waited{0};
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = score(call, {1}).status();
    harness_.clock.advance(std::chrono::seconds(29));
    if (status.ok()) waited += std::chrono::seconds(29);
    harness_.turn();
  }
  EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
  EXPECT_GE(waited, EngineOptions().idle_timeout);
  EXPECT_LE(waited, EngineOptions().idle_timeout + std::chrono::seconds(29));
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

// A reader thread may hand over what it has just read while the call's end is on its way.
TEST_F(ScoreTest, AChunkThatComesAfterTheEndIsAnsweredAndTouchesNoSlot) {
  const auto call = *harness_.engine->start_score({}, {});
  ASSERT_TRUE(score(call, {1, 2, 3}).ok());
  harness_.engine->end_score(call);
  harness_.run();
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
  EXPECT_EQ(score(call, {4, 5}).status().code(), Code::kCancelled);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

TEST_F(ScoreTest, DrainingLetsWhatRunsGoOn) {
  const auto running = *harness_.engine->start_score({}, {});
  const auto unbegun = *harness_.engine->start_score({}, {});
  ASSERT_TRUE(score(running, {1, 2}).ok());
  harness_.engine->drain();
  EXPECT_TRUE(score(running, {3}).ok());
  EXPECT_EQ(score(unbegun, {1, 2}).status().code(), Code::kUnavailable);
  harness_.engine->end_all({Code::kUnavailable, "over"});
  harness_.run();
  EXPECT_EQ(score(running, {4}).status().code(), Code::kUnavailable);
}

// Whoever asks behind the end of a call finds its slot free, also within one turn.
TEST_F(ScoreTest, TheSlotOfACallThatEndsIsThereForTheNext) {
  Harness harness(fake_spec(), {.slots = 1, .rows = 1, .values = 4, .steps = 1});
  const auto begin = [&](std::optional<Status>& outcome) {
    auto call = *harness.engine->start_score({}, {});
    const Status put = harness.engine->score(
        call, {1, 2}, [&](const Result<ScoredChunk>& scored) { outcome = scored.status(); });
    EXPECT_TRUE(put.ok());
    return call;
  };
  std::optional<Status> first;
  std::optional<Status> second;
  const auto call = begin(first);
  harness.run();
  ASSERT_TRUE(first && first->ok());
  harness.engine->end_score(call);
  begin(second);
  harness.run();
  EXPECT_TRUE(second && second->ok());
}

// --- Quotas ---

// A caller whose account may have so many values a second.
Caller paced_caller(const std::string& account, int64_t values_per_second) {
  Caller caller;
  caller.account = account;
  caller.usage = std::make_shared<AccountUsage>();
  caller.usage->set_values_per_second(values_per_second);
  return caller;
}

TEST(Scheduler, AnAccountHasItsValuesASecondAndNoMore) {
  Harness harness;
  GenerateRequest request = request_of({1}, 10'000);
  request.caller = paced_caller("slow", 100);
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(harness.engine->stats().values_sampled, 101) << "a second's, and the step beyond";
  for (int i = 0; i < 300; ++i) {
    harness.clock.advance(10 * kMs);
    harness.run();
  }
  EXPECT_EQ(harness.engine->stats().values_sampled, 401);
  EXPECT_EQ(reader->values[0], expected({1}, static_cast<int>(reader->values[0].size())));
  EXPECT_FALSE(reader->end.has_value()) << "it is paced, not ended";
}

TEST(Scheduler, ARunningStreamKeepsToAQuotaThatChanges) {
  Harness harness;
  GenerateRequest request = request_of({1}, 10'000);
  request.caller = paced_caller("slow", 100);
  harness.generate(request);
  const auto values_of_a_second = [&] {
    const int64_t before = harness.engine->stats().values_sampled;
    for (int i = 0; i < 100; ++i) {
      harness.clock.advance(10 * kMs);
      harness.run();
    }
    return harness.engine->stats().values_sampled - before;
  };
  harness.run();
  EXPECT_EQ(values_of_a_second(), 100);
  request.caller.usage->set_values_per_second(10);
  EXPECT_NEAR(static_cast<double>(values_of_a_second()), 10, 1);
  request.caller.usage->set_values_per_second(50);
  EXPECT_NEAR(static_cast<double>(values_of_a_second()), 50, 1);
}

TEST(Scheduler, PromptsAndScoresAreCountedToo) {
  Harness harness;
  const Caller caller = paced_caller("slow", 100);
  GenerateRequest request = request_of(std::vector<int32_t>(500, 1), 10);
  request.caller = caller;
  const auto reader = harness.generate(request);
  const auto call = *harness.engine->start_score(caller, {});
  bool scored = false;
  const auto done = [&](const Result<ScoredChunk>& chunk) { scored = chunk.ok(); };
  ASSERT_TRUE(harness.engine->score(call, std::vector<int32_t>(400, 2), done).ok());
  harness.run();
  const int64_t at_once = harness.engine->stats().values_consumed;
  EXPECT_GE(at_once, 100);
  EXPECT_LE(at_once, 100 + 16) << "a second's, and what the last step took";
  for (int i = 0; i < 100; ++i) {
    harness.clock.advance(100 * kMs);
    harness.run();
  }
  EXPECT_TRUE(scored);
  EXPECT_EQ(reader->values[0], expected(std::vector<int32_t>(500, 1), 10));
}

TEST(Scheduler, APacedAccountDoesNotHoldUpOthers) {
  Harness harness;
  GenerateRequest request = request_of({1}, 10'000);
  request.caller = paced_caller("slow", 1);
  const auto slow = harness.generate(request);
  harness.run();
  const auto other = harness.generate(request_of({2}, 50));
  harness.run();
  EXPECT_TRUE(other->end.has_value());
  EXPECT_EQ(other->values[0], expected({2}, 50));
  EXPECT_LT(slow->values[0].size(), 4U);
}

TEST(Scheduler, AnAccountThatIsFarBehindIsRefusedWithTheTimeToWait) {
  Harness harness;
  GenerateRequest request = request_of(std::vector<int32_t>(16, 1), 10);
  request.caller = paced_caller("ada", 2);
  harness.generate(request);
  harness.run();
  const auto refused = harness.generate(request);
  ASSERT_TRUE(refused->end.has_value());
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  EXPECT_EQ(refused->end->message(),
            "ada has used up its quota: values_per_second is 2; try again in 6.5 s");
  EXPECT_EQ(refused->end->retry_after(), std::chrono::milliseconds(6500));
  EXPECT_EQ(harness.engine->start_score(request.caller, {}).status().code(),
            Code::kResourceExhausted);
  harness.clock.advance(6500 * kMs);
  EXPECT_TRUE(harness.engine->start_score(request.caller, {}).ok());
}

}  // namespace
}  // namespace runnel
