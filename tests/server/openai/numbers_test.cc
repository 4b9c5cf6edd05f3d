// Numbers in fields of HTTP requests: their forms, meanings and refusals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "server/http/request_fields.h"
#include "server/openai/completion_request.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// Both read a JSON number.
std::optional<int64_t> whole(const char* text) { return whole_number(Json::parse(text)); }
std::optional<float> single(const char* text) { return float_number(Json::parse(text)); }

TEST(Numbers, AWholeNumberMayBeWrittenWithAFraction) {
  EXPECT_EQ(whole("16"), 16);
  EXPECT_EQ(whole("16.0"), 16);
  EXPECT_EQ(whole("1.6e1"), 16);
  EXPECT_EQ(whole("-0.0"), 0);
  EXPECT_EQ(whole("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(whole("-9223372036854775808.0"), INT64_MIN);
  EXPECT_EQ(whole("9223372036854775807"), INT64_MAX);
  for (const char* const other : {"16.5", "9223372036854775808", "9223372036854775808.0", "1e300",
                                  "-1e19", "\"16\"", "true", "null", "[16]"}) {
    EXPECT_EQ(whole(other), std::nullopt) << other;
  }
}

TEST(Numbers, SmallNumbersDoNotBecomeZero) {
  EXPECT_EQ(single("0.5"), 0.5F);
  EXPECT_EQ(single("7"), 7.0F);
  EXPECT_EQ(single("0.0"), 0.0F);
  EXPECT_EQ(single("1e-300"), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(single("-1e-300"), -std::numeric_limits<float>::denorm_min());
  for (const char* const other : {"1e39", "-1e39", "\"1\"", "true", "null"}) {
    EXPECT_EQ(single(other), std::nullopt) << other;
  }
}

TEST(Numbers, QueriesReadNumbersLikeBodies) {
  const auto limit = [](const char* target) { return query_number(target, "limit", 1, 1000); };
  EXPECT_EQ(limit("/v1/sessions").value(), std::nullopt);
  EXPECT_EQ(limit("/v1/sessions?limit=16").value(), 16);
  EXPECT_EQ(limit("/v1/sessions?limit=16.0").value(), 16);
  for (const char* const wrong : {"0", "1001", "16.5", "1x", "true", "[1]", "1%002"}) {
    const auto refused = limit((std::string("/v1/sessions?limit=") + wrong).c_str());
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << wrong;
    EXPECT_THAT(refused.status().message(),
                HasSubstr("it must be a whole number between 1 and 1000"));
  }
}

GenerateRequest completion(const char* fields) {
  CompletionRequest request;
  const Fault fault = read_completion(Json::parse(fields), request);
  EXPECT_TRUE(fault.ok()) << fault.status.message();
  return request.answer.call;
}

TEST(Numbers, EveryFieldOfACompletionTakesThem) {
  const GenerateRequest call = completion(
      R"({"prompt":[1.0,2.0],"max_tokens":5.0,"n":2.0,"seed":-7.0,"top_k":3.0,"logprobs":4.0,
          "position":6.0,"best_of":2.0,"min_tokens":0.0,"mirostat":0.0})");
  EXPECT_EQ(call.max_values, 5);
  EXPECT_EQ(call.samples, 2);
  EXPECT_EQ(call.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(call.sampling.top_k, 3);
  EXPECT_EQ(call.top_log_probs, 4);
  EXPECT_EQ(call.expected_position, 6);
  EXPECT_EQ(completion(R"({"seed":-9223372036854775808})").seed, uint64_t{1} << 63);
  EXPECT_GT(completion(R"({"repetition_penalty":5e-324})").penalties->repetition, 0);
}

TEST(Numbers, ATinyTemperatureIsGreedy) {
  for (const char* const tiny :
       {R"({"temperature":0})", R"({"temperature":-0.0})", R"({"temperature":1e-8})",
        R"({"temperature":1e-4})", R"({"temperature":1e-300})"}) {
    EXPECT_EQ(completion(tiny).sampling, Sampling{.greedy = true}) << tiny;
  }
  EXPECT_EQ(completion(R"({"temperature":0.001})").sampling, Sampling{.temperature = 0.001F});
}

struct Case {
  const char* fields;
  const char* message;  // of the refusal; "" if the number is accepted
};

TEST(Numbers, AreRefusedAsTheyWereWritten) {
  const OpenAiServer test;
  for (const auto& [fields, message] : {
           Case{R"({"temperature":0,"top_p":0})", ""},
           Case{R"({"temperature":1e-8,"top_p":0.0,"top_k":1,"min_p":1})", ""},
           Case{R"({"temperature":0,"top_p":2})", "top_p is 2; it must be above 0 and at most 1"},
           Case{R"({"top_p":0})", "top_p is 0; it must be above 0 and at most 1"},
           Case{R"({"top_p":1e-300})", ""},
           Case{R"({"top_k":2147483647})", ""},
           Case{R"({"temperature":-1e-8})", "temperature is -1e-08; it must be between 0 and 100"},
           Case{R"({"temperature":100.5})", "temperature is 100.5; it must be between 0 and 100"},
           Case{R"({"temperature":1e39})",
                "temperature is 1e+39, which is too large; send a smaller one"},
           Case{R"({"logit_bias":{"5":-1e39}})",
                "logit_bias has -1e+39 for token 5, which is too large; send a smaller one"},
           Case{R"({"n":1.5})", "n is 1.5; it must be a whole number between 1 and 4096"},
           Case{
               R"({"prompt":[1.5]})",
               "prompt must be a text, a list of tokens from 0 to 2147483647, or a list of either"},
           Case{R"({"max_tokens":1e300})",
                "max_tokens is 1e+300; it must be a whole number between 0 and 1099511627776"},
       }) {
    Json body = {{"prompt", "a"}, {"max_tokens", 2}};
    body.update(Json::parse(fields));
    const ApiAnswer answer = test.complete(body);
    EXPECT_EQ(answer.status, *message == '\0' ? 200 : 400) << fields << answer.body;
    EXPECT_EQ(answer.status == 200 ? "" : answer.error("message"), message);
  }
}

TEST(Numbers, OtherPathsReadNumbersTheSameWay) {
  const OpenAiServer test;
  EXPECT_EQ(test.post("/detokenize", Json::parse(R"({"tokens":[97.0,98]})")).body["prompt"], "ab");
  EXPECT_EQ(test.post("/v1/sessions", {{"id", "a"}}).status, 200);
  EXPECT_EQ(test.complete({{"session", "a"}, {"prompt", "XY"}, {"max_tokens", 1}}).status, 200);
  const ApiAnswer forks = test.post("/v1/sessions/a/fork", Json::parse(R"({"count":2.0})"));
  EXPECT_EQ(forks.body["data"].size(), 2U) << forks.body;
  EXPECT_EQ(test.post("/v1/sessions/a/fork", Json::parse(R"({"count":2.5})")).error("message"),
            "count is 2.5; it must be a whole number between 1 and 4096");
  EXPECT_EQ(test.post("/v1/sessions/a/rewind", Json::parse(R"({"position":0.5})")).error("param"),
            "position");
}

}  // namespace
}  // namespace runnel
