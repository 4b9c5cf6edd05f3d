// Sessions over real sockets.

#include "server/rest/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ApiAnswer drop(const OpenAiServer& test, const std::string& path) {
  return test.ask(OpenAiServer::request("DELETE", path));
}

std::string text_of(const OpenAiServer& test, const Json& body) {
  const ApiAnswer answer = test.complete(body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.body["choices"][0]["text"];
}

TEST(HttpSessions, AreCreatedFoundAndDeleted) {
  const OpenAiServer test;
  const ApiAnswer made = test.post("/v1/sessions", {{"model", "fake"}, {"id", "a:1"}});
  EXPECT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.body["id"], "a:1");
  EXPECT_EQ(made.body["object"], "session");
  EXPECT_EQ(made.body["state"], "new");
  EXPECT_EQ(made.body["position"], 0);
  EXPECT_EQ(made.body["state_bytes"], 8);
  const ApiAnswer again = test.post("/v1/sessions", {{"id", "a:1"}});
  EXPECT_EQ(again.status, 409);
  EXPECT_EQ(again.error("param"), "id");
  EXPECT_EQ(test.get("/v1/sessions/a%3A1?model=fake").body["id"], "a:1");
  EXPECT_EQ(test.get("/v1/sessions/a:1").status, 200);
  EXPECT_EQ(test.get("/v1/sessions/a:1?x=y&model=other").error("code"), "model_not_found");
  EXPECT_EQ(test.get("/v1/sessions/b").status, 404);
  EXPECT_EQ(test.get("/v1/sessions/b").error("param"), "id");
  EXPECT_EQ(test.get("/v1/sessions/b").error("message"), "no session 'b'");
  const ApiAnswer gone = drop(test, "/v1/sessions/a:1?model=fake");
  EXPECT_EQ(gone.body, Json({{"id", "a:1"}, {"object", "session"}, {"deleted", true}}));
  EXPECT_EQ(drop(test, "/v1/sessions/a:1").status, 404);
  EXPECT_EQ(drop(test, "/v1/sessions/a:1").error("param"), "id");
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
}

// The header line that names a session.
std::string named(const std::string& id) { return "\r\nx-session-id: " + id + "\r\n"; }

TEST(HttpSessions, AreNamedInAHeaderOfAnswersAboutThem) {
  const OpenAiServer test;
  const ApiAnswer made = test.post("/v1/sessions", Json::object());
  EXPECT_THAT(made.head, HasSubstr(named(made.body["id"])));
  EXPECT_EQ(test.post("/v1/sessions", {{"id", "a"}}).status, 200);
  EXPECT_THAT(test.get("/v1/sessions/a").head, HasSubstr(named("a")));
  EXPECT_THAT(test.get("/v1/sessions/b").head, Not(HasSubstr("x-session-id")));
  const ApiAnswer kept = test.complete({{"prompt", "XY"}, {"max_tokens", 3}, {"keep", true}});
  EXPECT_THAT(kept.head, HasSubstr(named(kept.body["choices"][0]["session"])));
  const Json on = {{"session", "a"}, {"prompt", "XY"}, {"max_tokens", 3}, {"keep", false}};
  EXPECT_THAT(test.complete(on).head, HasSubstr(named("a")));
  Json streamed = on;
  streamed["stream"] = true;
  HttpClient client = test.client();
  client.send(OpenAiServer::request("POST", "/v1/completions", streamed.dump()));
  EXPECT_THAT(client.response().head, HasSubstr(named("a")));
  EXPECT_THAT(test.complete({{"prompt", "XY"}, {"max_tokens", 3}}).head,
              Not(HasSubstr("x-session-id")));
  EXPECT_THAT(test.complete({{"session", "none"}, {"max_tokens", 3}}).head,
              Not(HasSubstr("x-session-id")));
}

TEST(HttpSessions, AreListedInPages) {
  const OpenAiServer test;
  for (const char* const id : {"a", "b", "c"}) {
    EXPECT_EQ(test.post("/v1/sessions", {{"id", id}}).status, 200);
  }
  const Json first = test.get("/v1/sessions?limit=2").body;
  ASSERT_EQ(first["data"].size(), 2U);
  EXPECT_EQ(first["data"][1]["id"], "b");
  EXPECT_EQ(first["has_more"], true);
  EXPECT_EQ(first["last_id"], "b");
  const Json rest = test.get("/v1/sessions?limit=2&after=b").body;
  ASSERT_EQ(rest["data"].size(), 1U);
  EXPECT_EQ(rest["data"][0]["id"], "c");
  EXPECT_EQ(rest["has_more"], false);
  EXPECT_FALSE(rest.contains("last_id"));
  EXPECT_EQ(test.get("/v1/sessions?limit=2.0").body["data"].size(), 2U) << "as in a body";
  for (const char* const limit : {"0", "1001", "-1", "x", "99999999999", "1e30", "2.5", "2x"}) {
    const ApiAnswer refused = test.get(std::string("/v1/sessions?limit=") + limit);
    EXPECT_EQ(refused.status, 400) << limit;
    EXPECT_EQ(refused.error("param"), "limit");
    EXPECT_EQ(refused.error("message"), std::string("limit is '") + limit +
                                            "'; it must be a whole number between 1 and 1000");
  }
}

TEST(HttpSessions, AForkContinuesLikeItsParent) {
  const OpenAiServer test;
  EXPECT_EQ(test.post("/v1/sessions", {{"id", "a"}}).status, 200);
  text_of(test, {{"session", "a"}, {"prompt", "XY"}, {"max_tokens", 3}, {"seed", 7}});
  const ApiAnswer made = test.post("/v1/sessions/a/fork", {{"children", {"b", "c"}}});
  ASSERT_EQ(made.status, 200) << made.body;
  ASSERT_EQ(made.body["data"].size(), 2U);
  EXPECT_EQ(made.body["data"][0]["position"], 5);
  const auto more = [&](const char* id) {
    return text_of(test, {{"session", id}, {"max_tokens", 9}, {"seed", 7}});
  };
  EXPECT_EQ(more("b"), more("a"));
  EXPECT_EQ(test.post("/v1/sessions/a/fork", {{"count", 2}}).body["data"].size(), 2U);
  EXPECT_EQ(test.post("/v1/sessions/a/fork", Json::object()).body["data"].size(), 1U);
  EXPECT_EQ(test.post("/v1/sessions/none/fork", Json::object()).error("param"), "id");
  const ApiAnswer taken = test.post("/v1/sessions/a/fork", {{"children", {"c"}}});
  EXPECT_EQ(taken.status, 409);
  EXPECT_EQ(taken.error("param"), "children");
  const ApiAnswer full = test.post("/v1/sessions/a/fork", {{"count", 8}});
  EXPECT_EQ(full.status, 429) << full.body;
  const ApiAnswer never = test.post("/v1/sessions/a/fork", {{"count", 9}});
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_EQ(never.error("param"), "count");
  EXPECT_THAT(never.error("message"), HasSubstr("count asks for 9 states, and the server keeps 8"));
  for (const char* const body :
       {R"({"count":0})", R"({"children":[]})", R"({"children":"b"})", R"({"children":[1]})",
        R"({"children":["d"],"count":1})", R"({"other":1})"}) {
    EXPECT_EQ(test.post("/v1/sessions/a/fork", Json::parse(body)).status, 400) << body;
  }
}

TEST(HttpSessions, AreCountedAsCallsOfTheirMethod) {
  const OpenAiServer test;
  test.post("/v1/sessions", {{"id", "a"}});
  EXPECT_TRUE(eventually([&] { return test.state.calls.count() == 0; }));
  EXPECT_THAT(test.log_text.str(), HasSubstr("rpc=CreateSession model=fake"));
}

}  // namespace
}  // namespace runnel
