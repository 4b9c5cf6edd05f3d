#include "server/host/call_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/fake_model.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPlenty = 1 << 16;

// A call that got three values at position 4 and has sampled two.
CallRecord some_call(bool has_top = true) {
  CallRecord call;
  call.request_id = "x";
  for (size_t i = 0; i < call.digest.size(); ++i) call.digest[i] = static_cast<uint8_t>(200 + i);
  call.position = 4;
  call.place = TurnPlace::kEnd;
  call.values = {{.value = 5, .position = 7, .log_prob = -0.1F},
                 {.value = 0, .position = 8, .log_prob = -1e-20F}};
  if (has_top) {
    call.values[1].top_count = 2;
    call.top = {{0, -1e-20F}, {3, -std::numeric_limits<float>::infinity()}};
  }
  call.finished = Finished{.reason = FinishReason::kStop,
                           .prompt_values = 3,
                           .cached_values = 1,
                           .sampled_values = 2,
                           .position = 9,
                           .elapsed = Duration(1234567890123),
                           .first_value = Duration(7)};
  return call;
}

Record record_with(const SavedAnswer& answer, int64_t position = 9) {
  Record record;
  record.last = "id:x";
  record.position = position;
  record.answer = answer;
  return record;
}

Spec some_spec() {
  Spec spec = fake_spec();
  spec.vocabulary = 6;
  return spec;
}

Result<std::shared_ptr<CallRecord>> read(const CallRecord& call, int64_t position = 9) {
  return read_answer(record_with(answer_of(&call, kPlenty), position), some_spec());
}

void expect_same(const CallRecord& one, const CallRecord& two) {
  EXPECT_EQ(one.digest, two.digest);
  EXPECT_EQ(one.position, two.position);
  EXPECT_EQ(one.place, two.place);
  ASSERT_EQ(one.values.size(), two.values.size());
  for (size_t i = 0; i < one.values.size(); ++i) {
    EXPECT_EQ(one.values[i].value, two.values[i].value);
    EXPECT_EQ(one.values[i].position, two.values[i].position);
    EXPECT_EQ(one.values[i].log_prob, two.values[i].log_prob);
    EXPECT_EQ(one.values[i].top_count, two.values[i].top_count);
  }
  ASSERT_EQ(one.top.size(), two.top.size());
  for (size_t i = 0; i < one.top.size(); ++i) {
    EXPECT_EQ(one.top[i].value, two.top[i].value);
    EXPECT_EQ(one.top[i].log_prob, two.top[i].log_prob);
  }
}

TEST(CallAnswer, ReadsBackTheSame) {
  for (const bool has_top : {true, false}) {
    const CallRecord call = some_call(has_top);
    const SavedAnswer answer = answer_of(&call, kPlenty);
    EXPECT_TRUE(answer.has_ended);
    const auto found = read_answer(record_with(answer), some_spec());
    ASSERT_TRUE(found.ok()) << found.status().message();
    expect_same(**found, call);
    ASSERT_TRUE((*found)->finished);
    const Finished& finished = *(*found)->finished;
    EXPECT_EQ(finished.reason, FinishReason::kStop);
    EXPECT_EQ(finished.prompt_values, 3);
    EXPECT_EQ(finished.cached_values, 1);
    EXPECT_EQ(finished.sampled_values, 2);
    EXPECT_EQ(finished.position, 9);
    EXPECT_EQ(finished.elapsed, Duration(1234567890123));
    EXPECT_EQ(finished.first_value, Duration(7));
  }
}

TEST(CallAnswer, TheAnswerOfAStoppedCallHasNoEnd) {
  CallRecord call = some_call();
  call.finished.reset();
  EXPECT_FALSE(answer_of(&call, kPlenty).has_ended);
  const auto found = read(call);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_FALSE((*found)->finished);
  expect_same(**found, call);
  call.values.clear();  // stopped in the prompt
  call.top.clear();
  EXPECT_TRUE((*read(call, 6))->values.empty());
}

TEST(CallAnswer, AnAnswerThatDoesNotFitHasNoText) {
  CallRecord call = some_call();
  const auto bytes = std::ssize(answer_of(&call, kPlenty).text);
  EXPECT_EQ(std::ssize(answer_of(&call, bytes).text), bytes);
  EXPECT_TRUE(answer_of(&call, bytes - 1).text.empty());
  EXPECT_TRUE(answer_of(&call, 0).text.empty());
  EXPECT_TRUE(answer_of(&call, 0).has_ended);
  call.finished.reset();
  EXPECT_FALSE(answer_of(&call, 0).has_ended) << "that is known in any case";
  call.whole = false;
  EXPECT_EQ(answer_of(&call, kPlenty), (SavedAnswer{.has_ended = false}));
  EXPECT_EQ(answer_of(nullptr, kPlenty), SavedAnswer());
}

TEST(CallAnswer, AThousandValuesTakeAtMostElevenBytesEach) {
  CallRecord call = some_call(false);
  const auto few = std::ssize(answer_of(&call, kPlenty).text);
  call.values.resize(1002);
  const auto many = std::ssize(answer_of(&call, kPlenty).text);
  EXPECT_LE(many - few, 11 * 1000);
}

// Anyone who can write to the store can also write answers.
TEST(CallAnswer, TruncatedAnswersAreRefused) {
  const CallRecord call = some_call();
  const std::string text = answer_of(&call, kPlenty).text;
  for (size_t size = 0; size < text.size(); ++size) {
    const auto found = read_answer(record_with({.text = text.substr(0, size)}), some_spec());
    EXPECT_EQ(found.status().code(), Code::kDataLoss) << size;
  }
}

TEST(CallAnswer, InvalidFieldsAreRefused) {
  const auto refused = [](const CallRecord& call, int64_t position = 9) {
    const Status status = read(call, position).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    return status.message();
  };
  const std::vector<std::function<void(CallRecord&)>> wrongs = {
      [](auto& call) { call.values[0].value = 6; },
      [](auto& call) { call.values[0].value = -1; },
      [](auto& call) { call.values[0].log_prob = std::nanf(""); },
      [](auto& call) { call.top[0].value = 6; },
      [](auto& call) { call.top[1].log_prob = std::nanf(""); },
      [](auto& call) { call.values.resize(6); }};
  for (size_t i = 0; i < wrongs.size(); ++i) {
    CallRecord call = some_call();
    wrongs[i](call);
    EXPECT_THAT(refused(call), HasSubstr("values that cannot be")) << i;
  }
  CallRecord call = some_call();
  call.position = 10;
  EXPECT_THAT(refused(call), HasSubstr("position"));
  call = some_call();
  call.finished->position = 8;
  EXPECT_THAT(refused(call), HasSubstr("ends at position 8, not at 9"));
  call = some_call();
  call.finished->prompt_values = -1;
  EXPECT_THAT(refused(call), HasSubstr("prompt_values"));
  call = some_call();
  call.finished->sampled_values = 10;
  EXPECT_THAT(refused(call), HasSubstr("sampled_values"));
  call = some_call();
  SavedAnswer answer = answer_of(&call, kPlenty);
  answer.has_ended = false;
  EXPECT_THAT(read_answer(record_with(answer), some_spec()).status().message(),
              HasSubstr("do not agree on whether the call has ended"));
}

TEST(CallAnswer, InvalidMembersAreRefused) {
  const CallRecord call = some_call();
  const std::string text = answer_of(&call, kPlenty).text;
  const auto status_with = [&](const std::string& found, const std::string& wrong) {
    std::string changed = text;
    EXPECT_NE(changed.find(found), changed.npos) << found;
    changed.replace(changed.find(found), found.size(), wrong);
    return read_answer(record_with({.text = changed}), some_spec()).status();
  };
  EXPECT_TRUE(status_with("\"place\":2", "\"place\":3").ok());
  for (const auto& [found, wrong] :
       {std::pair("\"digest\":\"c8", "\"digest\":\""),
        std::pair("\"digest\":\"c8", "\"digest\":\"C8"),
        std::pair("\"digest\":\"c8", "\"digest\":\"c8c8"), std::pair("\"digest\":", "\"other\":"),
        std::pair("\"digest\":\"", "\"digest\":7,\"x\":\""),
        std::pair("\"place\":2", "\"place\":4"), std::pair("\"place\":2", "\"place\":-1"),
        std::pair("\"place\":2", "\"place\":\"2\""),
        std::pair("\"has_top\":true", "\"has_top\":false"),
        std::pair("\"has_top\":true", "\"has_top\":1"),
        std::pair("\"values\":\"", "\"values\":\"AAAA"),
        std::pair("\"values\":\"", "\"values\":\"!"),
        std::pair("\"values\":\"", "\"values\":1,\"x\":\""),
        std::pair("\"reason\":1", "\"reason\":5"), std::pair("\"reason\":1", "\"reason\":-1"),
        std::pair("\"elapsed_ns\":", "\"elapsed_ns\":-"),
        std::pair("\"first_value_ns\":7", "\"first_value_ns\":1.5"),
        std::pair("\"finished\":{", "\"finished\":{\"x\":1,"),
        std::pair("\"finished\":{", "\"finished\":[],\"x\":{")}) {
    EXPECT_EQ(status_with(found, wrong).code(), Code::kDataLoss) << wrong;
  }
}

}  // namespace
}  // namespace runnel
