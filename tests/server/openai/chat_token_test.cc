// State tokens in Chat and Responses: a conversation continues on any server, and each call sends
// only the new messages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "config/key_file.h"
#include "models/state/seal.h"
#include "models/template/chat_format.h"
#include "server/host/chat_input.h"
#include "server/host/metrics_text.h"
#include "tests/base/test_files.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/openai/chat_models.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

const std::string kChat = "/v1/chat/completions";
const std::string kResponses = "/v1/responses";

ServedModel talking_model(const std::string& source = kChatTemplate) {
  ServedModel model = served_bundle(small_text_spec(), 1);
  model.chat = ChatFormat::make({.source = source, .name = "chat.jinja"}, model.tokenizer).value();
  return model;
}

// A server with the seal key that all servers here share.
std::unique_ptr<OpenAiServer> sealed_server(const OpenAiServer::Options& options = {},
                                            ServedModel model = talking_model()) {
  auto test = std::make_unique<OpenAiServer>(options, std::move(model));
  test->state.seal_keys = SealKeys{make_seal_key(std::string(32, 's'))};
  return test;
}

Json chat_of(const char* content, Json more) {
  Json body = {{"messages", {{{"role", "user"}, {"content", content}}}},
               {"max_completion_tokens", 5},
               {"seed", 7},
               {"return_token_ids", true},
               {"ignore_eos", true}};
  body.update(more);
  return body;
}

Json response_of(const char* content, Json more) {
  Json body = {{"input", content}, {"max_output_tokens", 5}, {"seed", 7}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

// The answer after `token`. If it is null, the message starts a conversation.
ApiAnswer chat_after(const OpenAiServer& test, const Json& token, const char* content) {
  return test.post(kChat, chat_of(content, {{"state_token", token}, {"include_state", true}}));
}

Json token_of(const ApiAnswer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.body["choices"][0]["state_token"];
}

// Writes a file with the keys "alice" and "bob". Alice may hold one state.
std::string keys_of(const TempDir& folder) {
  const std::string path = folder.path() + "/keys";
  const Status status = change_key_file(path, true, [&](std::vector<KeyEntry>& entries) {
    for (const char* const name : {"alice", "bob"}) {
      entries.emplace_back();
      entries.back().name = name;
      entries.back().digest = digest_of_key(name);
    }
    entries.front().sessions = 1;
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return path;
}

ApiAnswer ask_as(const OpenAiServer& test, const std::string& caller, const std::string& path,
                 const Json& body) {
  return test.post(path, body, "Authorization: Bearer " + caller + "\r\n");
}

TEST(ChatTokens, AConversationContinuesOnAnotherServerAsInASession) {
  const auto one = sealed_server();
  const auto two = sealed_server();
  ASSERT_EQ(one->post("/v1/sessions", {{"id", "talk"}}).status, 200);
  Json token;
  std::vector<int32_t> joined;
  const auto add = [&](const std::string& text) {
    joined.insert(joined.end(), text.begin(), text.end());
  };
  for (const char* const content : {"HI", "SO", "NO"}) {
    add((joined.empty() ? "[U]" : "\n[U]") + std::string(content) + "\n[A]");
    const ApiAnswer expected = one->post(kChat, chat_of(content, {{"session", "talk"}}));
    ASSERT_EQ(expected.status, 200) << expected.body;
    const ApiAnswer found = chat_after(token.is_null() ? *one : *two, token, content);
    token = token_of(found);
    ASSERT_TRUE(token.is_string());
    Json choice = found.body["choices"][0];
    EXPECT_FALSE(choice.contains("session"));
    choice.erase("state_token");
    choice["session"] = "talk";
    EXPECT_EQ(choice, expected.body["choices"][0]);
    EXPECT_EQ(found.body["usage"], expected.body["usage"]) << "the new messages alone";
    const Json cold = two->complete({{"prompt", joined},
                                     {"max_tokens", 5},
                                     {"seed", 7},
                                     {"return_token_ids", true},
                                     {"ignore_eos", true}})
                          .body;
    EXPECT_EQ(choice["token_ids"], cold["choices"][0]["token_ids"]);
    for (const Json& id : choice["token_ids"]) joined.push_back(id);
  }
  EXPECT_TRUE(eventually([&] { return two->sessions_free() == kTestLimits.slots; }));
  EXPECT_TRUE(eventually([&] { return two->state.memory.held() == 0; }));
}

TEST(ChatTokens, AResponseContinuesOnAnotherServer) {
  const auto one = sealed_server();
  const auto two = sealed_server();
  ASSERT_EQ(one->post("/v1/sessions", {{"id", "talk"}}).status, 200);
  Json token;
  for (const char* const content : {"HI", "SO", "NO"}) {
    const Json said = one->post(kChat, chat_of(content, {{"session", "talk"}})).body;
    const OpenAiServer& test = token.is_null() ? *one : *two;
    const ApiAnswer found = test.post(
        kResponses, response_of(content, {{"state_token", token}, {"include_state", true}}));
    ASSERT_EQ(found.status, 200) << found.body;
    EXPECT_EQ(found.body["output"][0]["content"][0]["text"],
              said["choices"][0]["message"]["content"]);
    EXPECT_EQ(found.body["usage"]["input_tokens"], said["usage"]["prompt_tokens"]);
    EXPECT_EQ(found.body["store"], false);
    EXPECT_EQ(test.get("/v1/responses/" + found.body["id"].get<std::string>()).status, 404);
    token = found.body["state_token"];
    ASSERT_TRUE(token.is_string());
  }
  EXPECT_TRUE(eventually([&] { return two->sessions_free() == kTestLimits.slots; }));
  EXPECT_TRUE(eventually([&] { return two->state.memory.held() == 0; }));
}

TEST(ChatTokens, AStreamEndsWithItsToken) {
  const auto test = sealed_server();
  const auto chunks = test->stream(chat_of("HI", {{"include_state", true}}), kChat);
  ASSERT_GE(chunks.size(), 2U);
  EXPECT_EQ(chunks.back(), "[DONE]");
  const Json last = Json::parse(chunks[chunks.size() - 2])["choices"][0];
  EXPECT_TRUE(last["finish_reason"].is_string());
  const Json next = {{"state_token", last["state_token"]}, {"include_state", true}};
  const auto events = test->stream(response_of("SO", next), kResponses);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_FALSE(Json::parse(events[i]).value("response", Json::object()).contains("state_token"));
  }
  const Json whole = Json::parse(events.back());
  EXPECT_EQ(whole["type"], "response.incomplete");
  EXPECT_EQ(chat_after(*test, whole["response"]["state_token"], "NO").status, 200);
}

TEST(ChatTokens, AnOldTokenForks) {
  const auto test = sealed_server();
  const Json token = token_of(chat_after(*test, nullptr, "HI"));
  const Json once = chat_after(*test, token, "SO").body["choices"][0];
  const Json forks = test->post(kChat, chat_of("SO", {{"state_token", token}, {"n", 3}})).body;
  ASSERT_EQ(forks["choices"].size(), 3U) << forks;
  EXPECT_EQ(forks["choices"][0]["token_ids"], once["token_ids"]);
  EXPECT_EQ(chat_after(*test, token, "SO").body["choices"][0]["token_ids"], once["token_ids"]);
}

TEST(ChatTokens, ATokenBelongsToItsCallerAndCountsAgainstTheirQuotas) {
  const TempDir folder;
  const auto test = sealed_server({.keys = keys_of(folder)});
  const Json first = chat_of("HI", {{"include_state", true}});
  const Json token = token_of(ask_as(*test, "alice", kChat, first));
  const Json next = {{"state_token", token}};
  const ApiAnswer others = ask_as(*test, "bob", kChat, chat_of("SO", next));
  EXPECT_EQ(others.status, 403);
  EXPECT_EQ(others.error("param"), "state_token");
  EXPECT_THAT(others.error("message"), HasSubstr("the state token belongs to another caller"));
  EXPECT_EQ(ask_as(*test, "bob", kResponses, response_of("SO", next)).status, 403);
  EXPECT_THAT(metrics_text(test->state, {}),
              HasSubstr("runnel_tokens_total{code=\"PERMISSION_DENIED\"} 2\n"));
  EXPECT_TRUE(eventually([&] { return test->sessions_free() == kTestLimits.slots; }));
  EXPECT_EQ(ask_as(*test, "alice", kChat, chat_of("SO", next)).status, 200);
  EXPECT_TRUE(eventually([&] { return test->sessions_free() == kTestLimits.slots; }));
  ASSERT_EQ(ask_as(*test, "alice", "/v1/sessions", {{"id", "a"}}).status, 200);
  const ApiAnswer many = ask_as(*test, "alice", kChat, chat_of("SO", next));
  EXPECT_EQ(many.status, 429);
  EXPECT_EQ(many.error("code"), "quota_sessions");
}

TEST(ChatTokens, ACallReservesTheMemoryOfItsTokens) {
  const auto test = sealed_server({.call_bytes = rendering_bytes(1000) + (4 << 20)});
  EXPECT_EQ(test->post(kChat, chat_of("HI", Json::object())).status, 200);
  for (const ApiAnswer& full :
       {test->post(kChat, chat_of("HI", {{"include_state", true}})),
        test->post(kResponses, response_of("HI", {{"include_state", true}}))}) {
    EXPECT_EQ(full.status, 429);
    EXPECT_EQ(full.error("code"), "call_bytes");
  }
  EXPECT_TRUE(eventually([&] { return test->state.memory.held() == 0; }));
}

TEST(ChatTokens, UnsupportedChatRequestsAreRefused) {
  const auto test = sealed_server();
  const Json token = token_of(chat_after(*test, nullptr, "HI"));
  const auto refusal = [&](Json more) {
    more["state_token"] = more.value("state_token", token);
    const ApiAnswer answer = test->post(kChat, chat_of("SO", more));
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer;
  };
  EXPECT_EQ(refusal({{"state_token", "a b"}}).error("param"), "state_token");
  EXPECT_EQ(refusal({{"state_token", "Zm9v"}}).error("param"), "state_token");
  EXPECT_EQ(refusal({{"state_token", 1}}).error("param"), "state_token");
  EXPECT_EQ(refusal({{"session", "talk"}}).error("param"), "session");
  EXPECT_EQ(refusal({{"state", "s"}}).error("param"), "state");
  EXPECT_EQ(refusal({{"keep", true}}).error("param"), "keep");
  const ApiAnswer many = refusal({{"n", 2}, {"include_state", true}});
  EXPECT_EQ(many.error("param"), "n");
  EXPECT_EQ(many.error("message"), "include_state is for one sample, and n is 2");
  const Json system = Json::array({{{"role", "system"}, {"content", "BE"}}});
  EXPECT_EQ(refusal({{"messages", system}}).error("message"),
            "messages has a message of the role 'system', but the conversation of the state token "
            "has begun: send it with the first messages");
  Json body = chat_of("SO", {{"state_token", token}, {"position", 1}});
  EXPECT_EQ(test->post(kChat, body).status, 409);
  body["position"] = 14;
  EXPECT_EQ(test->post(kChat, body).status, 200);
  EXPECT_TRUE(eventually([&] { return test->sessions_free() == kTestLimits.slots; }));
}

TEST(ChatTokens, UnsupportedResponsesRequestsAreRefused) {
  const auto test = sealed_server();
  const Json stored = test->post(kResponses, response_of("HI", Json::object())).body["id"];
  const Json from_stored = {{"previous_response_id", stored}, {"include_state", true}};
  const ApiAnswer first = test->post(kResponses, response_of("SO", from_stored));
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_GT(first.body["usage"]["input_tokens"], 19) << "the whole conversation";
  const auto refusal = [&](Json more) {
    more["state_token"] = first.body["state_token"];
    const ApiAnswer answer = test->post(kResponses, response_of("NO", more));
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.error("param") + ": " + answer.error("message");
  };
  EXPECT_THAT(refusal({{"previous_response_id", stored}}),
              HasSubstr("previous_response_id: previous_response_id cannot be combined with"));
  EXPECT_THAT(refusal({{"instructions", "BE"}}), HasSubstr("instructions cannot be combined with"));
  EXPECT_THAT(refusal({{"store", true}}), HasSubstr("store must be false with state_token"));
  const Json tools = Json::array({{{"type", "function"}, {"name", "f"}}});
  EXPECT_EQ(refusal({{"tools", tools}}),
            "tools: tools is set, but the conversation of the state token has begun: it has read "
            "its tools with its first messages; leave tools out");
  EXPECT_THAT(refusal({{"keep", true}}), HasSubstr("keep: keep"));
}

TEST(ChatTokens, AServerOrATemplateWithoutTokensRefusesThem) {
  const OpenAiServer plain(OpenAiServer::Options{}, talking_model());
  for (const ApiAnswer& none :
       {plain.post(kChat, chat_of("HI", {{"include_state", true}})),
        plain.post(kResponses, response_of("HI", {{"include_state", true}}))}) {
    EXPECT_EQ(none.status, 400);
    EXPECT_EQ(none.error("param"), "include_state");
    EXPECT_EQ(none.error("message"),
              "this server has no state tokens: start it with --seal-keys, or leave include_state "
              "out");
  }
  const auto silent = sealed_server({}, served_bundle(small_text_spec(), 1));
  EXPECT_EQ(chat_after(*silent, nullptr, "HI").status, 404);
  const auto counting = sealed_server({}, talking_model("{% for m in messages %}{{ loop.index }}: "
                                                        "{{ m.content }}{{ '\\n' }}{% endfor %}"));
  const ApiAnswer later = chat_after(*counting, token_of(chat_after(*counting, {}, "HI")), "SO");
  EXPECT_EQ(later.status, 400);
  EXPECT_EQ(later.error("param"), "state_token");
  EXPECT_THAT(later.error("message"), HasSubstr("send the whole conversation without state_token"));
}

}  // namespace
}  // namespace runnel
