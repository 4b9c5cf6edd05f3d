// POST /v1/completions over real sockets: whole answers, streams and refusals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "config/key_file.h"
#include "tests/base/case_name.h"
#include "tests/base/eventually.h"
#include "tests/base/test_files.h"
#include "tests/engine/fake_model.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<int32_t> kPrompt = {3, 1, 4};

Json request(int64_t tokens) {
  return {{"model", "fake"}, {"prompt", kPrompt}, {"max_tokens", tokens}, {"seed", 7}};
}

TEST(Completions, AWholeAnswerHasTextReasonAndUsage) {
  const OpenAiServer test;
  const ApiAnswer answer = test.complete(request(20));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.body["object"], "text_completion");
  EXPECT_THAT(answer.body["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(answer.body["model"], "fake");
  EXPECT_EQ(answer.body["system_fingerprint"], "fake");
  ASSERT_EQ(answer.body["choices"].size(), 1U);
  const Json& choice = answer.body["choices"][0];
  EXPECT_EQ(choice["text"], bytes_of(expected_values(kPrompt, 20)));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"], Json());
  EXPECT_EQ(answer.body["usage"]["total_tokens"], 23);
  EXPECT_EQ(answer.body["usage"]["prompt_tokens_details"], Json({{"cached_tokens", 0}}));
}

TEST(Completions, APromptOfTextEqualsThePromptOfItsTokens) {
  const OpenAiServer test;
  Json by_text = request(10);
  by_text["prompt"] = bytes_of(kPrompt);
  EXPECT_EQ(test.complete(by_text).body["choices"], test.complete(request(10)).body["choices"]);
}

TEST(Completions, AStreamIsTheWholeAnswerInPieces) {
  const OpenAiServer test;
  Json body = request(100);
  body["n"] = 2;
  body["echo"] = true;
  body["prompt"] = {{3, 1}, {4}, {1, 5}};
  body["logprobs"] = 2;
  const Json whole = test.complete(body).body;
  body["stream_options"] = {{"include_usage", true}};
  const std::vector<std::string> events = test.stream(body);
  ASSERT_GT(events.size(), 8U);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json last = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["choices"], Json::array());
  EXPECT_EQ(last["usage"], whole["usage"]);
  std::vector<Json> joined(6, {{"text", ""}, {"logprobs", Json()}, {"finish_reason", Json()}});
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i]);
    EXPECT_EQ(chunk["usage"], Json());
    ASSERT_EQ(chunk["choices"].size(), 1U);
    const Json& piece = chunk["choices"][0];
    Json& all = joined.at(piece["index"]);
    ASSERT_TRUE(all["finish_reason"].is_null()) << "nothing follows the end";
    all["finish_reason"] = piece["finish_reason"];
    all["text"] = all["text"].get<std::string>() + piece["text"].get<std::string>();
    for (const auto& [name, list] : piece["logprobs"].items()) {
      for (const Json& entry : list) all["logprobs"][name].push_back(entry);
    }
  }
  for (int i = 0; i < 6; ++i) {
    for (const char* const member : {"text", "logprobs", "finish_reason"}) {
      EXPECT_EQ(joined[i][member], whole["choices"][i][member]) << i << member;
    }
  }
}

TEST(Completions, AStopTextEndsTheTextBeforeItself) {
  const OpenAiServer test;
  const std::string all = bytes_of(expected_values(kPrompt, 60));
  for (const size_t length : {1, 2, 5}) {
    Json body = request(60);
    const std::string stop = all.substr(30, length);
    body["stop"] = Json::array({stop, "never"});
    body["logprobs"] = 0;
    const std::string before = all.substr(0, all.find(stop));
    const Json choice = test.complete(body).body["choices"][0];
    EXPECT_EQ(choice["text"], before);
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), before.size());
    std::string streamed;
    for (const std::string& event : test.stream(body)) {
      if (event != "[DONE]") streamed += Json::parse(event)["choices"][0]["text"];
    }
    EXPECT_EQ(streamed, before);
  }
}

TEST(Completions, LogProbsAreOfEachTokenWithItsOffset) {
  const OpenAiServer test;
  Json body = request(8);
  body["logprobs"] = 3;
  const Json logprobs = test.complete(body).body["choices"][0]["logprobs"];
  std::vector<int32_t> known = kPrompt;
  const std::vector<int32_t> values = expected_values(kPrompt, 8);
  for (size_t i = 0; i < 8; ++i) {
    known.push_back(values[i]);
    EXPECT_EQ(logprobs["tokens"][i], std::string(1, static_cast<char>(values[i])));
    EXPECT_FLOAT_EQ(logprobs["token_logprobs"][i], FakeModel::expected_log_prob(known, i + 3));
    EXPECT_EQ(logprobs["text_offset"][i], i);
    EXPECT_LE(logprobs["top_logprobs"][i].size(), 3U);
  }
  body["logprobs"] = 0;
  EXPECT_EQ(test.complete(body).body["choices"][0]["logprobs"]["top_logprobs"], Json());
}

TEST(Completions, ASessionContinuesAtItsPosition) {
  const OpenAiServer test;
  Json body = request(5);
  body["keep"] = true;
  const Json first = test.complete(body).body["choices"][0];
  Json more = {{"model", "fake"}, {"session", first["session"]}, {"max_tokens", 5}, {"seed", 7}};
  more["position"] = first["position"];
  const Json second = test.complete(more).body["choices"][0];
  EXPECT_EQ(first["text"].get<std::string>() + second["text"].get<std::string>(),
            bytes_of(expected_values(kPrompt, 10)));
  EXPECT_EQ(second["position"], 13);
  const ApiAnswer elsewhere = test.complete(more);
  EXPECT_EQ(elsewhere.status, 409) << elsewhere.body;
  EXPECT_THAT(elsewhere.head, HasSubstr("X-Should-Retry: false"));
  more["session"] = "none";
  EXPECT_EQ(test.complete(more).status, 404);
}

struct Refusal {
  const char* change;  // to a valid request
  int status;
  const char* param;

  friend void PrintTo(const Refusal& of, std::ostream* out) { *out << of.change; }
};

class CompletionsRefuse : public ::testing::TestWithParam<Refusal> {};

TEST_P(CompletionsRefuse, NamingTheField) {
  const OpenAiServer test;
  Json body = request(5);
  body.merge_patch(Json::parse(GetParam().change));
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const ApiAnswer answer = test.complete(body);
    EXPECT_EQ(answer.status, GetParam().status) << answer.body;
    EXPECT_EQ(answer.error("param"), GetParam().param) << answer.body;
    EXPECT_EQ(answer.error("type"), "invalid_request_error");
  }
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, CompletionsRefuse,
    ::testing::Values(
        Refusal{R"({"model":"other"})", 404, "model"}, Refusal{R"({"model":5})", 400, "model"},
        Refusal{R"({"prompt":5})", 400, "prompt"}, Refusal{R"({"prompt":[1,"a"]})", 400, "prompt"},
        Refusal{R"({"prompt":[[1],5]})", 400, "prompt"},
        Refusal{R"({"prompt":[-1]})", 400, "prompt"}, Refusal{R"({"prompt":[100]})", 400, "prompt"},
        Refusal{R"({"prompt":[["a"]]})", 400, "prompt"},
        Refusal{R"({"max_tokens":-1})", 400, "max_tokens"},
        Refusal{R"({"max_tokens":1.5})", 400, "max_tokens"}, Refusal{R"({"n":0})", 400, "n"},
        Refusal{R"({"n":65})", 400, "n"}, Refusal{R"({"temperature":-1})", 400, "temperature"},
        Refusal{R"({"temperature":"hot"})", 400, "temperature"},
        Refusal{R"({"top_p":0})", 400, "top_p"}, Refusal{R"({"top_k":-2})", 400, "top_k"},
        Refusal{R"({"repetition_penalty":0})", 400, "repetition_penalty"},
        Refusal{R"({"repetition_penalty":"much"})", 400, "repetition_penalty"},
        Refusal{R"({"stop_token_ids":[5]})", 400, "stop_token_ids"},
        Refusal{R"({"min_p":2})", 400, "min_p"}, Refusal{R"({"seed":0.5})", 400, "seed"},
        Refusal{R"({"stop":[1]})", 400, "stop"}, Refusal{R"({"stop":""})", 400, "stop"},
        Refusal{R"({"stop":"\ufffd"})", 400, "stop"},
        Refusal{R"({"logprobs":21})", 400, "logprobs"},
        Refusal{R"({"presence_penalty":2.5})", 400, "presence_penalty"},
        Refusal{R"({"frequency_penalty":-3})", 400, "frequency_penalty"},
        Refusal{R"({"logit_bias":{"5":101}})", 400, "logit_bias"},
        Refusal{R"({"logit_bias":{"100":1}})", 400, "logit_bias"},
        Refusal{R"({"logit_bias":{"a":1}})", 400, "logit_bias"},
        Refusal{R"({"logit_bias":{"5":"1"}})", 400, "logit_bias"},
        Refusal{R"({"logit_bias":{"5":1,"05":1}})", 400, "logit_bias"},
        Refusal{R"({"logit_bias":[5]})", 400, "logit_bias"},
        Refusal{R"({"best_of":2})", 400, "best_of"}, Refusal{R"({"suffix":"x"})", 400, "suffix"},
        Refusal{R"({"max_queue_time":-1})", 400, "max_queue_time"},
        Refusal{R"({"max_queue_time":3601})", 400, "max_queue_time"},
        Refusal{R"({"max_queue_time":"1s"})", 400, "max_queue_time"},
        Refusal{R"({"tools":[]})", 400, "tools"}, Refusal{R"({"keep":1})", 400, "keep"},
        Refusal{R"({"prompt":["a","b"],"session":"s"})", 400, "session"},
        Refusal{R"({"session":"s","state":"t"})", 400, "state"}),
    [](const auto& info) { return case_name(info.index, info.param.change); });

TEST(Completions, FieldsWithoutAnEffectAreAccepted) {
  const OpenAiServer test;
  Json body = request(5);
  body.update(Json::parse(R"({"user":"u","presence_penalty":0,"frequency_penalty":0.0,"best_of":1,
      "logit_bias":{},"suffix":"","metadata":{},"stop":null,"repetition_penalty":1.0,"repeat_penalty":1,"length_penalty":1.0,
      "top_k":-1,"typical_p":1.0,"mirostat":0,"min_tokens":0,"use_beam_search":false,"bad_words":[],
      "stop_token_ids":[],"skip_special_tokens":true,"no_repeat_ngram_size":0,"logprobs":null,"stream_options":null})"));
  EXPECT_EQ(test.complete(body).body["choices"], test.complete(request(5)).body["choices"]);
}

TEST(Completions, APromptThatIsTooLongHasTheCodeThatClientsExpect) {
  Spec spec = byte_spec();
  spec.positions = 8;
  const OpenAiServer test({}, {}, spec);
  Json body = request(5);
  body["prompt"] = std::string(20, 'a');
  const ApiAnswer refused = test.complete(body);
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(refused.error("code"), "context_length_exceeded");
  EXPECT_EQ(refused.error("param"), "prompt");
}

TEST(Completions, BodiesThatAreNoRequestAreRefused) {
  const OpenAiServer test;
  const std::string deep = R"({"prompt":)" + std::string(5000, '[') + std::string(5000, ']') + "}";
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"model\":\"\xff\"}"),
        std::string("\xff\xfe{\0}\0", 6), std::string(R"({"model":"fake","model":"fake"})"),
        deep}) {
    const ApiAnswer answer = test.ask(OpenAiServer::request("POST", "/v1/completions", body));
    EXPECT_EQ(answer.status, 400) << body.substr(0, 40);
    EXPECT_THAT(answer.error("message"), HasSubstr("the body"));
  }
  const std::string long_body(65 << 10, ' ');
  EXPECT_EQ(test.ask(OpenAiServer::request("POST", "/v1/completions", long_body)).status, 413);
}

TEST(Completions, MessagesUseTheModelNameOfTheRequest) {
  OpenAiServer test;
  test.state.models.set_aliases({{"latest", "fake"}});
  const auto refusal = [&](const std::string& path, Json body) {
    body["model"] = "latest";
    return test.post(path, body).error("message");
  };
  const Json unknown = {{"prompt", {100}}};
  EXPECT_THAT(refusal("/v1/completions", unknown), HasSubstr("values of model 'latest' are"));
  EXPECT_THAT(test.complete(unknown).error("message"), HasSubstr("values of model 'fake' are"));
  EXPECT_THAT(refusal("/v1/images/generations", {{"n", 1}}), HasSubstr("model 'latest' draws no"));
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  EXPECT_THAT(refusal("/v1/chat/completions", chat), HasSubstr("model 'latest' has no chat"));
  EXPECT_THAT(refusal("/detokenize", {{"tokens", {256}}}), HasSubstr("model 'latest' has tokens"));
}

TEST(Completions, AFullPoolIsReportedBeforeAStreamBegins) {
  const OpenAiServer test;
  Json body = request(1 << 19);
  body["n"] = 8;
  body["stream"] = true;
  HttpClient holder = test.client();
  holder.send(OpenAiServer::request("POST", "/v1/completions", body.dump()));
  EXPECT_THAT(holder.read(15), StartsWith("HTTP/1.1 200 OK"));
  body["n"] = 1;
  const ApiAnswer refused = test.complete(body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.error("type"), "rate_limit_error");
  EXPECT_EQ(refused.error("code"), "sessions");
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
}

TEST(Completions, ACallWaitsForAStateUpToItsQueueTimeOrThatOfTheServer) {
  OpenAiServer test({}, slowly);
  Json all = request(1 << 19);
  all["n"] = 8;
  all["stream"] = true;
  const auto hold_all = [&] {
    auto holder = std::make_unique<HttpClient>(test.client());
    holder->send(OpenAiServer::request("POST", "/v1/completions", all.dump()));
    EXPECT_THAT(holder->read(15), StartsWith("HTTP/1.1 200 OK"));
    return holder;
  };
  const auto waiting = [&] {
    return test.state.models.all()->begin()->second->engine->stats().waiting;
  };
  auto holder = hold_all();
  Json body = request(5);
  body["max_queue_time"] = 0.05;
  EXPECT_EQ(test.complete(body).status, 429) << "its time is up";
  for (const bool says : {true, false}) {
    if (says) {
      body["max_queue_time"] = 600;
    } else {
      body.erase("max_queue_time");
      test.state.http_queue_time = kPatience;
    }
    HttpClient one = test.client();
    one.send(OpenAiServer::request("POST", "/v1/completions", body.dump()));
    EXPECT_TRUE(eventually([&] { return waiting() == 1; }));
    holder->reset();
    EXPECT_EQ(one.response().status, 200);
    EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
    holder = hold_all();
  }
  body["max_queue_time"] = 0;
  EXPECT_EQ(test.complete(body).status, 429) << "it does not want to wait";
  EXPECT_THAT(test.log_text.str(), HasSubstr(" queue_seconds="));
}

TEST(Completions, AClientThatGoesEndsItsCallsAtOnce) {
  const OpenAiServer test({}, slowly);
  for (const bool stream : {false, true}) {
    Json body = request(1 << 19);
    body["prompt"] = {{1}, {2}, {3}};
    body["stream"] = stream;
    HttpClient one = test.client();
    one.send(OpenAiServer::request("POST", "/v1/completions", body.dump()));
    EXPECT_TRUE(eventually([&] { return test.sessions_free() == 5; }));
    if (stream) {
      EXPECT_EQ(one.read(15), "HTTP/1.1 200 OK");
    }
    one.reset();
    EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
  }
}

TEST(Completions, CallsKeepToTheirMemoryLimit) {
  const OpenAiServer test(OpenAiServer::Options{.call_bytes = 1 << 20});
  Json body = request(1 << 19);
  body["n"] = 8;
  const ApiAnswer answer = test.complete(body);
  EXPECT_EQ(answer.status, 400) << "it would never succeed: " << answer.body;
  EXPECT_EQ(answer.error("code"), "call_bytes");
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

TEST(Completions, AnAnswerIsCountedUntilItsClientHasTakenIt) {
  const OpenAiServer test;
  Json body = request(400000);
  body["n"] = 8;
  HttpClient one = test.client();
  one.send(OpenAiServer::request("POST", "/v1/completions", body.dump()));
  ASSERT_TRUE(one.has_answer(600'000)) << "minutes, where the machine is slow";
  EXPECT_GT(test.state.memory.held(), 8 << 20) << "no buffer holds all of it";
  EXPECT_GE(test.state.calls.count(), 1);
  const HttpResponse answer = one.response();
  EXPECT_GT(answer.body.size(), 6U << 20);
  EXPECT_TRUE(eventually([&] { return test.state.calls.count() == 0; }));
  EXPECT_EQ(test.state.memory.held(), 0);
}

TEST(Completions, ARefusedPromptCountsForItsModel) {
  const OpenAiServer test;
  Json body = request(5);
  body["prompt"] = std::string(2000, 'a');
  EXPECT_EQ(test.complete(body).status, 400);
  EXPECT_THAT(test.log_text.str(), HasSubstr("rpc=openai.completions model=fake caller=\"\" "
                                             "peer=127.0.0.1 code=INVALID_ARGUMENT"));
}

TEST(Completions, ARefusalUsesTheFieldNamesOfTheClient) {
  const OpenAiServer test;
  const auto refusal = [&](const char* fields) {
    Json body = request(5);
    body.update(Json::parse(fields));
    return test.complete(body);
  };
  const ApiAnswer cold = refusal(R"({"temperature":-1e-8})");
  EXPECT_EQ(cold.error("message"), "temperature is -1e-08; it must be between 0 and 100");
  EXPECT_EQ(cold.error("param"), "temperature");
  const ApiAnswer kept = refusal(R"({"n":3,"keep":true})");
  EXPECT_THAT(kept.error("message"), HasSubstr("keep is set with n = 3"));
  const ApiAnswer gone = refusal(R"({"session":"nope"})");
  EXPECT_EQ(gone.error("message"), "no session 'nope': create it first, or leave session out");
  EXPECT_EQ(gone.error("param"), "session");
  const ApiAnswer option = refusal(R"({"stream":true,"stream_options":{"foo":1}})");
  EXPECT_EQ(option.error("message"),
            "stream_options.foo is not a field that this server knows; leave it out");
  EXPECT_EQ(option.error("param"), "stream_options.foo");
}

TEST(Completions, ADrainEndsAStreamWithAnError) {
  OpenAiServer test({}, slowly);
  Json body = request(1 << 19);
  body["stream"] = true;
  HttpClient one = test.client();
  one.send(OpenAiServer::request("POST", "/v1/completions", body.dump()));
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 7; }));
  test.state.models.drain();
  EXPECT_EQ(test.complete(request(5)).status, 503);
  test.state.calls.end_all({Code::kUnavailable, "the server is shutting down"});
  const std::string text = one.response().body;
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(data: {"error":{"message":"the server is shutting down","type":"server_error")"));
  EXPECT_EQ(text.find("[DONE]"), std::string::npos);
}

// Writes a file with alice's key, "secret".
void write_key(const std::string& path, const std::function<void(KeyEntry&)>& change) {
  ASSERT_TRUE(change_key_file(path, true, [&](std::vector<KeyEntry>& all) {
                KeyEntry entry;
                entry.name = "alice";
                entry.digest = digest_of_key("secret");
                change(entry);
                all = {entry};
                return Status();
              }).ok());
}

TEST(Completions, RemovingARightEndsTheStreamsThatNeedIt) {
  const TestFolder folder;
  const std::string path = folder.path("keys.json");
  write_key(path, [](KeyEntry&) {});
  OpenAiServer test(OpenAiServer::Options{.keys = path}, slowly);
  Json body = request(1 << 19);
  body["stream"] = true;
  HttpClient one = test.client();
  one.send(OpenAiServer::request("POST", "/v1/completions", body.dump(),
                                 "Authorization: Bearer secret\r\n"));
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 7; }));
  write_key(path, [](KeyEntry& entry) { entry.models = {"another"}; });
  test.state.callers.refresh(test.log, test.state.clock.now());
  test.state.calls.tend_all(test.state.clock.now());
  EXPECT_THAT(one.response().body,
              HasSubstr("the key of this call may no longer use model 'fake'"));
}

TEST(Completions, KeysAndQuotasApply) {
  const TestFolder folder;
  const std::string path = folder.path("keys.json");
  write_key(path, [](KeyEntry& entry) { entry.calls = 2; });
  const OpenAiServer test(OpenAiServer::Options{.keys = path});
  const auto ask = [&](const char* headers, const Json& body) {
    return test.post("/v1/completions", body, headers);
  };
  for (const char* const headers : {"", "Authorization: Bearer wrong\r\n"}) {
    const ApiAnswer refused = ask(headers, request(5));
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.error("code"), "invalid_api_key");
    EXPECT_THAT(refused.head, HasSubstr("WWW-Authenticate: Bearer"));
  }
  EXPECT_EQ(test.get("/v1/models").status, 401);
  EXPECT_EQ(test.post("/tokenize", {{"prompt", "a"}}).status, 401);
  const char* const key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(ask(key, request(5)).status, 200);
  Json three = request(5);
  three["prompt"] = {"a", "b", "c"};
  EXPECT_EQ(ask(key, three).status, 200) << "two at a time";
  Json endless = request(1 << 19);
  endless["prompt"] = {"a", "b"};
  endless["stream"] = true;
  HttpClient holder = test.client();
  holder.send(OpenAiServer::request("POST", "/v1/completions", endless.dump(), key));
  EXPECT_EQ(holder.read(15), "HTTP/1.1 200 OK");
  const ApiAnswer over = ask(key, request(5));
  EXPECT_EQ(over.status, 429) << over.body;
  EXPECT_EQ(over.error("code"), "quota_calls");
  for (const char* const path : {"/tokenize", "/detokenize", "/v1/sessions"}) {
    EXPECT_EQ(test.post(path, Json::object(), key).error("code"), "quota_calls") << path;
  }
  holder.reset();
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
  EXPECT_TRUE(eventually([&] { return ask(key, request(5)).status == 200; }));
  EXPECT_THAT(test.log_text.str(),
              HasSubstr("rpc=openai.completions model=fake caller=alice peer=127.0.0.1 code=OK"));
}

}  // namespace
}  // namespace runnel
