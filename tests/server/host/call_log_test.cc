#include "server/host/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace runnel {
namespace {

using ::testing::HasSubstr;

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
  std::optional<LoggedCall> call = loggable(request);
  note_start(call, started);
  note_end(call, finished);
  return call;
}

LoggedCall some_logged() {
  auto call = logged(some_request(), started_at(9), {.sampled_values = 5, .position = 17});
  call->sampled = hash_with(kNoValues, 3);
  return *call;
}

Record record_of(const std::vector<std::string>& log, int64_t from = 9, int64_t to = 17) {
  Record record;
  record.epoch = 2;
  record.saved = 2;
  record.position = to;
  record.state_at = from;
  record.log = log;
  return record;
}

TEST(CallLog, ReadsBackTheSame) {
  const std::string entry = log_text(some_logged(), "cpu");
  const auto calls = read_log(record_of({entry}), "cpu");
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
  EXPECT_EQ(call.sampled, hash_with(kNoValues, 3));
  EXPECT_TRUE(call.request.ignore_eos) << "it ends by its number of values alone";
  EXPECT_FALSE(call.request.may_stop() || call.request.max_time);
  EXPECT_TRUE(read_log(record_of({}, 9, 9), "cpu")->empty());
}

TEST(CallLog, AnotherNumericsIdIsRefused) {
  const std::string entry = log_text(some_logged(), "cpu");
  const Status status = read_log(record_of({entry}), "cuda").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("numerics id 'cpu', and this server computes 'cuda'"));
}

TEST(CallLog, TruncatedOrInconsistentLogsAreRefused) {
  const std::string entry = log_text(some_logged(), "cpu");
  const auto refused = [](const Record& record) {
    const Status status = read_log(record, "cpu").status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << status.message();
    return status.message();
  };
  for (size_t size = 0; size < entry.size(); ++size) refused(record_of({entry.substr(0, size)}));
  EXPECT_THAT(refused(record_of({entry, entry})), HasSubstr("entry 2: it does not begin at"));
  EXPECT_THAT(refused(record_of({entry}, 8)), HasSubstr("begin at position 8"));
  EXPECT_THAT(refused(record_of({entry}, 9, 18)), HasSubstr("ends at position 17, not at 18"));
}

// Anyone who can write to the store can also write entries.
TEST(CallLog, InvalidFieldsAreRefused) {
  LoggedCall call = some_logged();
  call.after = 9 + kMostLogValues + 1;
  const auto code = [](const LoggedCall& each) {
    const Record record = record_of({log_text(each, "cpu")}, each.before, each.after);
    return read_log(record, "cpu").status().code();
  };
  EXPECT_EQ(code(call), Code::kDataLoss) << "too many values";
  call = some_logged();
  EXPECT_EQ(code(call), Code::kOk);
  call.request.max_values = kMostLogValues + 1;
  EXPECT_EQ(code(call), Code::kDataLoss);
  call = some_logged();
  call.after = 8;
  EXPECT_EQ(code(call), Code::kDataLoss) << "backwards";
  call = some_logged();
  call.request.prompt = {-1};
  EXPECT_EQ(code(call), Code::kOk) << "the engine refuses it";
  call.request.prompt.assign(kMostLogValues + 1, 1);
  EXPECT_EQ(code(call), Code::kDataLoss);
  call = some_logged();
  call.request.penalties = std::make_shared<const Penalties>(
      Penalties{1.0F, 0.0F, 0.0F, std::vector<LogitBias>(301, {1, 1.0F})});
  EXPECT_EQ(code(call), Code::kDataLoss);
}

TEST(CallLog, InvalidNumbersAreRefused) {
  const std::string entry = log_text(some_logged(), "cpu");
  const auto code = [&](const std::string& found, const std::string& wrong) {
    std::string text = entry;
    EXPECT_NE(text.find(found), text.npos) << found;
    text.replace(text.find(found), found.size(), wrong);
    return read_log(record_of({text}), "cpu").status().code();
  };
  EXPECT_EQ(code("[3,1,4]", "[3,1,4]"), Code::kOk);
  for (const char* prompt : {"[2147483648]", "[-2147483649]", "[18446744073709551615]", "[1.5]",
                             "[\"1\"]", "[[1]]", "[null]", "3", "{}"}) {
    EXPECT_EQ(code("[3,1,4]", prompt), Code::kDataLoss) << prompt;
  }
  for (const char* sampling : {"\"sampling\":[4,", "\"sampling\":[]", "\"other\":["}) {
    EXPECT_EQ(code("\"sampling\":[", sampling), Code::kDataLoss) << sampling;
  }
  EXPECT_EQ(code("\"penalties\":[", "\"penalties\":[],\"x\":["), Code::kDataLoss);
  EXPECT_EQ(code("\"count\":5", "\"count\":-1"), Code::kDataLoss);
  EXPECT_EQ(code("\"count\":5", "\"count\":5e9"), Code::kDataLoss);
  EXPECT_EQ(code("\"sampled\":", "\"sampled\":\"\",\"x\":"), Code::kDataLoss);
  EXPECT_EQ(code("\"numerics\":\"cpu\"", "\"numerics\":3"), Code::kFailedPrecondition);
  EXPECT_EQ(code("\"numerics\":\"cpu\",", ""), Code::kDataLoss);
  EXPECT_EQ(code("\"begin\":true", "\"begin\":1"), Code::kDataLoss);
}

TEST(CallLog, CallsThatCannotBeReplayedAreNotLogged) {
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

TEST(CallLog, LogsTheValuesOfATurn) {
  GenerateRequest request = some_request();
  request.prompt.assign(kMostLogValues + 1, 1);  // only an empty session reads it
  request.turn = NextTurn{.values = {7, 8}, .end_of_turn = 7, .end = 1, .after_stop = {9}};
  const Finished finished = {.sampled_values = 5, .position = 17};
  const auto prompt = [&](TurnPlace place) {
    const auto call = logged(request, started_at(9, place), finished);
    return call ? call->request.prompt : std::vector<int32_t>();
  };
  EXPECT_EQ(prompt(TurnPlace::kInside), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(prompt(TurnPlace::kEnd), (std::vector<int32_t>{8}));
  EXPECT_EQ(prompt(TurnPlace::kStopText), (std::vector<int32_t>{9}));
  EXPECT_FALSE(logged(request, started_at(0), finished)) << "a session that is empty";
  request.turn->after_stop.assign(kMostLogValues + 1, 1);
  EXPECT_FALSE(logged(request, started_at(9, TurnPlace::kInside), finished));
}

}  // namespace
}  // namespace runnel
