// Turns of a conversation on a session. The values that the session reads depend on how much of the
// end of its last answer it has read.
#include "engine/next_turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/fields.h"
#include "engine/rewinds.h"
#include "engine/validate.h"
#include "tests/engine/expected.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr int kAnswer = 4;  // length of the first answer
constexpr ModelLimits kModel = {.slots = 6, .rows = 4, .values = 8, .steps = 1, .recent = 8};
const std::vector<int32_t> kFirst = {1, 2, 3};  // the prompt of the first turn
const std::vector<int32_t> kNews = {5, 6};      // the values of the second turn's messages

// The first answer.
std::vector<int32_t> answer() { return expected(kFirst, kAnswer); }

// A turn on session "a". `end`: the value that ends an answer.
GenerateRequest turn_of(std::vector<int32_t> prompt, const std::vector<int32_t>& news,
                        int64_t count, int32_t end) {
  GenerateRequest request = request_of(std::move(prompt), count);
  request.session = "a";
  request.end_of_turn = end;
  request.turn = NextTurn{.values = joined({end, 4}, news), .end_of_turn = end, .end = 1};
  return request;
}

std::shared_ptr<Reader> run(Harness& harness, const GenerateRequest& request) {
  auto reader = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reader->end) << "the call has ended";
  return reader;
}

// Runs a call and returns its sampled values.
std::vector<int32_t> sample(Harness& harness, const GenerateRequest& request) {
  const auto reader = run(harness, request);
  EXPECT_TRUE(reader->end->ok()) << reader->end->to_string();
  return reader->values[0];
}

// Makes session "a", which has read the first turn and has sampled the first answer.
void start(Harness& harness, int32_t end, int64_t count) {
  ASSERT_TRUE(harness.create("a").ok());
  const std::vector<int32_t> said = sample(harness, turn_of(kFirst, {9}, count, end));
  ASSERT_EQ(said, answer());
}

TEST(NextTurn, TheFirstAnswerHasDistinctValues) {
  std::vector<int32_t> values = answer();
  std::ranges::sort(values);
  EXPECT_EQ(std::ranges::adjacent_find(values), values.end())
      << "other tests take this for granted";
}

TEST(NextTurn, AnEmptySessionReadsTheWholePrompt) {
  Harness harness(fake_spec(), kModel);
  start(harness, 99, kAnswer);
  EXPECT_EQ(harness.get("a")->position, 3 + kAnswer);
}

TEST(NextTurn, AfterTheValueThatEndsAnAnswerTheEndIsLeftOut) {
  Harness harness(fake_spec(), kModel);
  const int32_t end = answer().back();
  start(harness, end, 50);
  const auto reader = run(harness, turn_of({}, kNews, 6, end));
  const std::vector<int32_t> known = joined(joined(kFirst, answer()), {4, 5, 6});
  EXPECT_EQ(reader->values[0], expected(known, 6));
  EXPECT_EQ(reader->finished[0].prompt_values, 3);
  EXPECT_EQ(reader->started->position, 3 + kAnswer);
  EXPECT_EQ(reader->started->place, TurnPlace::kEnd);
}

TEST(NextTurn, AfterAValueThatEndsTheModelsTextsTheEndIsLeftOut) {
  Spec spec = fake_spec();
  spec.eos = {answer().back()};
  Harness harness(spec, kModel);
  start(harness, 99, 50);
  EXPECT_EQ(sample(harness, turn_of({}, kNews, 1, 99)),
            expected(joined(joined(kFirst, answer()), {4, 5, 6}), 1));
}

TEST(NextTurn, AnEndIsAddedToAnAnswerThatWasCutOff) {
  Harness harness(fake_spec(), kModel);
  start(harness, 99, kAnswer);
  const auto reader = run(harness, turn_of({}, kNews, 6, 99));
  EXPECT_EQ(reader->values[0], expected(joined(joined(kFirst, answer()), {99, 4, 5, 6}), 6));
  EXPECT_EQ(reader->finished[0].prompt_values, 4);
}

// A turn in which the text of the last two values of the first answer ends an answer.
GenerateRequest text_turn(int64_t count) {
  GenerateRequest request = request_of(kFirst, count);
  request.session = "a";
  request.tokenizer = number_tokenizer();
  const std::vector<int32_t> said = answer();
  for (const int32_t value : {said[kAnswer - 2], said[kAnswer - 1]}) {
    request.stop_text.resize(1);
    request.stop_text[0] += request.tokenizer->bytes(value);
  }
  request.turn = NextTurn{.values = joined({7, 8, 4}, kNews),
                          .stop_text = request.stop_text[0],
                          .after_stop = joined({4}, kNews)};
  return request;
}

TEST(NextTurn, AfterTheTextThatEndsAnAnswerOnlyTheRestIsRead) {
  Harness harness(fake_spec(), kModel);
  ASSERT_TRUE(harness.create("a").ok());
  ASSERT_EQ(sample(harness, text_turn(50)), answer());
  EXPECT_EQ(sample(harness, text_turn(6)),
            expected(joined(joined(kFirst, answer()), {4, 5, 6}), 6));
}

TEST(NextTurn, WithoutRecentValuesOnlyTheLastOneIsTheText) {
  ModelLimits limits = kModel;
  limits.recent = 0;
  for (const bool fits : {false, true}) {
    Harness harness(fake_spec(), limits);
    ASSERT_TRUE(harness.create("a").ok());
    GenerateRequest request = text_turn(50);
    if (fits) request.stop_text[0] = request.tokenizer->bytes(answer().back());
    request.turn->stop_text = request.stop_text[0];
    ASSERT_EQ(sample(harness, request), answer());
    request.max_values = 6;
    const std::vector<int32_t> given = fits ? joined({4}, kNews) : joined({7, 8, 4}, kNews);
    EXPECT_EQ(sample(harness, request), expected(joined(joined(kFirst, answer()), given), 6));
  }
}

TEST(NextTurn, AForkAndAnImportHaveTheSameEnd) {
  Harness harness(fake_spec(), kModel);
  ASSERT_TRUE(harness.create("a").ok());
  ASSERT_EQ(sample(harness, text_turn(50)), answer());
  ASSERT_TRUE(harness.fork("a", {"b"}).ok());
  const auto image = harness.export_state("a");
  ASSERT_TRUE(image.ok());
  ASSERT_TRUE(harness.import_state("c", *image).ok());
  for (const char* const id : {"a", "b", "c"}) {
    GenerateRequest request = text_turn(6);
    request.session = id;
    EXPECT_EQ(sample(harness, request), expected(joined(joined(kFirst, answer()), {4, 5, 6}), 6))
        << id;
  }
}

TEST(NextTurn, ARewoundSessionHasItsEarlierEnd) {
  EngineOptions options;
  options.rewind_values = 12;
  options.rewind_every = 4;
  ModelLimits limits = kModel;
  limits.slots_of_session = static_cast<int>(1 + snapshots_of(options, limits.steps));
  limits.slots = 3 * limits.slots_of_session;
  Harness harness(fake_spec(), limits, options);
  ASSERT_TRUE(harness.create("a").ok());
  ASSERT_EQ(sample(harness, text_turn(50)), answer());
  const std::vector<int32_t> known = joined(kFirst, answer());
  const auto position = static_cast<int64_t>(known.size());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sample(harness, text_turn(6)), expected(joined(known, {4, 5, 6}), 6)) << i;
    ASSERT_TRUE(harness.rewind("a", position).ok());
  }
  // One value earlier, the answer has not ended.
  ASSERT_TRUE(harness.rewind("a", position - 1).ok());
  std::vector<int32_t> shorter = known;
  shorter.pop_back();
  EXPECT_EQ(sample(harness, text_turn(6)), expected(joined(shorter, {7, 8, 4, 5, 6}), 6));
}

TEST(NextTurn, ARetryReadsTheSameValues) {
  const int32_t end = answer().back();
  const std::vector<int32_t> news = {5, 6, 7, 8, 9, 10};
  for (const int turns : {1, 2, 3, 8}) {  // some cancel in the prompt, some after it
    Harness harness(fake_spec(), {.slots = 3, .rows = 2, .values = 4, .steps = 1});
    start(harness, end, 50);
    GenerateRequest request = turn_of({}, news, 9, 99);
    request.turn->end_of_turn = end;
    request.request_id = "call";
    const auto first = harness.generate(request);
    for (int i = 0; i < turns; ++i) harness.turn();
    first->stream->cancel();
    harness.run();
    const auto again = run(harness, request);
    EXPECT_TRUE(again->end->ok()) << again->end->to_string();
    const std::vector<int32_t> known = joined(joined(kFirst, answer()), joined({4}, news));
    EXPECT_EQ(again->values[0], expected(known, 9)) << turns;
    EXPECT_EQ(again->finished[0].prompt_values, 7) << turns;
    GenerateRequest other = request;
    other.turn->values.back() = 11;
    EXPECT_FALSE(run(harness, other)->end->ok()) << "a retry is the same call";
  }
}

TEST(NextTurn, WithoutKeepTheSessionDoesNotMove) {
  Harness harness(fake_spec(), kModel);
  start(harness, 99, kAnswer);
  GenerateRequest request = turn_of({}, kNews, 6, 99);
  request.keep = false;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sample(harness, request),
              expected(joined(joined(kFirst, answer()), {99, 4, 5, 6}), 6));
  }
  EXPECT_EQ(harness.get("a")->position, 3 + kAnswer);
}

TEST(NextTurn, AnotherCallContinuesTheSameSession) {
  Harness harness(fake_spec(), kModel);
  start(harness, 99, kAnswer);
  GenerateRequest plain = request_of({8}, 2);
  plain.session = "a";
  const std::vector<int32_t> known = joined(joined(kFirst, answer()), {8});
  const std::vector<int32_t> said = sample(harness, plain);
  EXPECT_EQ(said, expected(known, 2));
  EXPECT_EQ(sample(harness, turn_of({}, kNews, 6, 99)),
            expected(joined(joined(known, said), {99, 4, 5, 6}), 6));
}

TEST(NextTurn, RefusalsDependOnWhetherTheSessionHasBegun) {
  Harness harness(fake_spec(), kModel);
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = turn_of(kFirst, kNews, kAnswer, 99);
  request.turn->at_start = invalid_argument("not first");
  EXPECT_EQ(run(harness, request)->end->message(), "not first");
  request.turn->at_start = {};
  request.turn->later = invalid_argument("not later");
  EXPECT_TRUE(run(harness, request)->end->ok());
  EXPECT_EQ(run(harness, request)->end->message(), "not later");
  EXPECT_EQ(harness.get("a")->position, 3 + kAnswer) << "a refused call reads nothing";
  request.expected_position = 3;
  EXPECT_EQ(run(harness, request)->end->code(), Code::kAborted) << "the position comes first";
}

TEST(NextTurn, ItsValuesAreChecked) {
  const Spec spec = fake_spec();
  for (const bool stopped : {false, true}) {
    GenerateRequest request = turn_of(kFirst, kNews, 1, 99);
    EXPECT_TRUE(validate(request, spec, {}).ok());
    (stopped ? request.turn->after_stop : request.turn->values) = {100};
    const Status status = validate(request, spec, {});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.field(), fields::kPrompt);
    EXPECT_THAT(status.message(), HasSubstr("prompt[0] is 100"));
  }
  // The length of the turn is checked against the session's position.
  Harness harness(fake_spec(9), kModel);
  start(harness, 99, kAnswer);
  EXPECT_EQ(run(harness, turn_of({}, kNews, 1, 99))->end->code(), Code::kOutOfRange);
}

TEST(NextTurn, ATextEndsAnAnswerWhereTheLastValueCompletesIt) {
  const auto tokenizer = number_tokenizer();
  NextTurn turn;
  turn.stop_text = "><2>";  // the text begins inside a value
  const auto place = [&](const std::vector<int32_t>& last) {
    return place_in(turn, last, {}, tokenizer.get());
  };
  EXPECT_EQ(place({1, 2}), TurnPlace::kStopText);
  EXPECT_EQ(place({2}), TurnPlace::kInside);
  EXPECT_EQ(place({1, 2, 3}), TurnPlace::kInside);
  turn.stop_text = "><2";  // the value continues after the text
  EXPECT_EQ(place({1, 2}), TurnPlace::kStopText);
  EXPECT_EQ(place({1, 2, 3}), TurnPlace::kInside);
  EXPECT_EQ(place({}), TurnPlace::kInside);
  EXPECT_EQ(place_in(turn, std::vector<int32_t>{1, 2}, {}, nullptr), TurnPlace::kInside);
}

}  // namespace
}  // namespace runnel
