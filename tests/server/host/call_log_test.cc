#include "server/host/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/record_key.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

const std::string kKey = record_key("model", "ada", "a");

GenerateRequest some_request() {
  GenerateRequest request;
  request.session = "a";
  request.prompt = {3, 1, 4};
  request.begin = true;
  request.seed = ~uint64_t{5};
  request.sampling = {.temperature = 0.7F, .top_k = 4, .top_p = 0.9F, .min_p = 0.01F};
  request.penalties =
      std::make_shared<const Penalties>(Penalties{1.1F, -0.3F, 0.0F, {{2, -100.0F}, {7, 1e-8F}}});
  request.stop = {{1}};
  request.max_time = std::chrono::seconds(1);
  return request;
}

Started started_at(int64_t position, TurnPlace place = TurnPlace::kStart) {
  Started started;
  started.position = position;
  started.place = place;
  return started;
}

std::optional<LoggedCall> logged(const GenerateRequest& request, const Started& started,
                                 const Finished& finished) {
  std::optional<CallNotes> notes = CallNotes::of(request);
  if (!notes) return std::nullopt;
  notes->start(started);
  notes->finish(finished);
  return notes->call();
}

LoggedCall some_call() {
  return *logged(some_request(), started_at(9), {.sampled_values = 5, .position = 17});
}

Record record_with(const std::vector<std::string>& log, int64_t from = 9, int64_t to = 17) {
  Record record;
  record.epoch = 2;
  record.saved = 2;
  record.position = to;
  record.state_at = from;
  record.log = log;
  return record;
}

TEST(CallLog, IsReadAsItWasWritten) {
  const std::string entry = log_text(some_call(), "cpu", kKey);
  const auto calls = read_log(record_with({entry}), "cpu", kKey);
  ASSERT_TRUE(calls.ok()) << calls.status().message();
  ASSERT_EQ(calls->size(), 1U);
  const LoggedCall& call = calls->front();
  const GenerateRequest expected = some_request();
  EXPECT_EQ(call.before, 9);
  EXPECT_EQ(call.after, 17);
  EXPECT_EQ(call.request.prompt, expected.prompt);
  EXPECT_EQ(call.request.begin, expected.begin);
  EXPECT_EQ(call.request.seed, expected.seed);
  EXPECT_EQ(call.request.sampling, expected.sampling);
  EXPECT_EQ(*call.request.penalties, *expected.penalties);
  EXPECT_EQ(call.request.max_values, 5);
  EXPECT_TRUE(call.request.ignore_eos) << "it ends by its number of values alone";
  EXPECT_FALSE(call.request.may_stop() || call.request.max_time);
  EXPECT_TRUE(read_log(record_with({}, 9, 9), "cpu", kKey)->empty());
}

TEST(CallLog, OfAnotherNumericsIdIsRefused) {
  const std::string entry = log_text(some_call(), "cpu", kKey);
  const Status status = read_log(record_with({entry}), "cuda", kKey).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("numerics id 'cpu', and this server computes 'cuda'"));
}

TEST(CallLog, ThatIsTornChangedOrOfAnotherSessionIsRefused) {
  const std::string entry = log_text(some_call(), "cpu", kKey);
  const auto refused = [](const Record& record) {
    const Status status = read_log(record, "cpu", kKey).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << status.message();
    return status.message();
  };
  for (size_t size = 0; size < entry.size(); ++size) refused(record_with({entry.substr(0, size)}));
  std::string changed = entry;
  changed[changed.find("\"sampled\":5") + 10] = '6';
  EXPECT_THAT(refused(record_with({changed})), HasSubstr("entry 1 of its log: it is damaged"));
  const std::string other = log_text(some_call(), "cpu", record_key("model", "bob", "a"));
  EXPECT_THAT(refused(record_with({other})), HasSubstr("of another session"));
  EXPECT_THAT(refused(record_with({entry, entry})),
              HasSubstr("entry 2 of its log: it does not begin at"));
  EXPECT_THAT(refused(record_with({entry}, 8)), HasSubstr("begin at position 8"));
  EXPECT_THAT(refused(record_with({entry}, 9, 18)), HasSubstr("ends at position 17, not at 18"));
}

// Whoever can write into the store can also make the mark.
TEST(CallLog, WithAnythingThatCannotBeIsRefused) {
  LoggedCall call = some_call();
  call.after = 9 + kMostLogValues + 1;
  const auto code = [](const LoggedCall& each) {
    const Record record = record_with({log_text(each, "cpu", kKey)}, each.before, each.after);
    return read_log(record, "cpu", kKey).status().code();
  };
  EXPECT_EQ(code(call), Code::kDataLoss) << "too many values";
  call = some_call();
  EXPECT_EQ(code(call), Code::kOk);
  call.request.max_values = kMostLogValues + 1;
  EXPECT_EQ(code(call), Code::kDataLoss);
  call = some_call();
  call.after = 8;
  EXPECT_EQ(code(call), Code::kDataLoss) << "backwards";
  call = some_call();
  call.request.prompt = {-1};
  EXPECT_EQ(code(call), Code::kDataLoss);
  call.request.prompt.assign(kMostLogValues + 1, 1);
  EXPECT_EQ(code(call), Code::kDataLoss);
  call = some_call();
  call.request.penalties = std::make_shared<const Penalties>(
      Penalties{1.0F, 0.0F, 0.0F, std::vector<LogitBias>(301, {1, 1.0F})});
  EXPECT_EQ(code(call), Code::kDataLoss);
}

TEST(CallLog, HasNoPlaceForCallsThatCannotBeMadeAgain) {
  const Started started = started_at(9);
  const Finished finished = {.sampled_values = 5, .position = 17};
  GenerateRequest request = some_request();
  EXPECT_TRUE(logged(request, started, finished));
  EXPECT_FALSE(logged(request, started, {.reason = FinishReason::kTime, .position = 11}))
      << "it may not have read its prompt";
  EXPECT_TRUE(logged(request, started,
                     {.reason = FinishReason::kTime, .sampled_values = 1, .position = 13}));
  request.keep = false;
  EXPECT_FALSE(logged(request, started, finished));
  request = some_request();
  request.prompt.assign(kMostLogValues + 1, 1);
  EXPECT_FALSE(logged(request, started, finished));
}

TEST(CallLog, HasTheValuesThatATurnBecame) {
  GenerateRequest request = some_request();
  request.prompt.assign(kMostLogValues + 1, 1);  // for a session that is empty
  request.turn = NextTurn{.values = {7, 8}, .end_of_turn = 7, .end = 1, .after_stop = {9}};
  const Finished finished = {.sampled_values = 5, .position = 17};
  const auto prompt = [&](TurnPlace place) {
    const auto call = logged(request, started_at(9, place), finished);
    return call ? call->request.prompt : std::vector<int32_t>();
  };
  EXPECT_EQ(prompt(TurnPlace::kInside), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(prompt(TurnPlace::kEnd), (std::vector<int32_t>{8}));
  EXPECT_EQ(prompt(TurnPlace::kStopText), (std::vector<int32_t>{9}));
  EXPECT_FALSE(logged(request, started_at(0), finished)) << "the prompt is too long";
  request.prompt = {1, 2};
  EXPECT_EQ(prompt(TurnPlace::kStart), (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace runnel
