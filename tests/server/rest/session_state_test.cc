// States over real sockets: saved, loaded and rewound.

#include "server/rest/session_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "engine/rewinds.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kFile = "Content-Type: application/octet-stream\r\n";

ServedModel text_model(const EngineOptions& options = {}, ModelLimits limits = kTestLimits) {
  limits.slots *= static_cast<int>(1 + snapshots_of(options, limits.steps));
  return served_bundle(small_text_spec(), 1, options, limits);
}

HttpResponse save(const OpenAiServer& test, const std::string& id, const std::string& query = "") {
  HttpClient one = test.client();
  one.send(OpenAiServer::request("GET", "/v1/sessions/" + id + "/state" + query));
  return one.response();
}

ApiAnswer load(const OpenAiServer& test, const std::string& id, const std::string& file,
               const std::string& headers = "") {
  return test.ask(
      OpenAiServer::request("PUT", "/v1/sessions/" + id + "/state", file, kFile + headers));
}

// The values with which a session continues.
Json go_on(const OpenAiServer& test, const std::string& id, const Json& prompt = nullptr) {
  const ApiAnswer answer = test.complete({{"session", id},
                                          {"prompt", prompt},
                                          {"max_tokens", 9},
                                          {"seed", 7},
                                          {"return_token_ids", true},
                                          {"ignore_eos", true}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.body["choices"][0]["token_ids"];
}

void feed(const OpenAiServer& test, const std::string& id, const Json& prompt = {1, 2, 3}) {
  EXPECT_EQ(test.post("/v1/sessions", {{"id", id}}).status, 200);
  EXPECT_EQ(test.complete({{"session", id}, {"prompt", prompt}, {"max_tokens", 0}}).status, 200);
}

TEST(HttpSessionState, IsLoadedWithTheSameBits) {
  const OpenAiServer test(OpenAiServer::Options{}, text_model());
  feed(test, "a");
  const HttpResponse file = save(test, "a");
  EXPECT_EQ(file.status, 200);
  EXPECT_THAT(file.head, HasSubstr("Content-Type: application/octet-stream\r\n"));
  EXPECT_THAT(file.body, StartsWith("RNLSTATE"));
  const ApiAnswer made = load(test, "b%3A", file.body);
  EXPECT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.body["id"], "b:");
  EXPECT_EQ(made.body["position"], 3);
  EXPECT_EQ(made.body["state"], "idle");
  EXPECT_EQ(save(test, "b:").body, file.body);
  EXPECT_EQ(go_on(test, "b:"), go_on(test, "a"));
  EXPECT_THAT(test.log_text.str(), HasSubstr("rpc=ImportSession model="));
  EXPECT_THAT(test.log_text.str(), HasSubstr("rpc=ExportSession model="));
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

TEST(HttpSessionState, ComesInChunksOfAnySize) {
  const OpenAiServer test(OpenAiServer::Options{}, text_model());
  feed(test, "a");
  const std::string file = save(test, "a").body;
  HttpClient one = test.client();
  one.send(
      "PUT /v1/sessions/b/state HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" +
      std::string(kFile) + "\r\n");
  for (const char byte : file) one.send("1\r\n" + std::string(1, byte) + "\r\n");
  one.send("0\r\n\r\n");
  EXPECT_EQ(one.response().status, 200);
  EXPECT_EQ(save(test, "b").body, file);
}

TEST(HttpSessionState, AFileThatIsRefusedChangesNothing) {
  const OpenAiServer test(OpenAiServer::Options{}, text_model());
  feed(test, "a");
  const std::string file = save(test, "a").body;
  const int64_t free = test.sessions_free();
  std::string changed = file;
  changed.back() ^= 1;
  for (const std::string& bad : {file.substr(0, file.size() - 1), changed, file + "x", "x" + file,
                                 std::string(), std::string(1 << 20, 'x')}) {
    const ApiAnswer answer = load(test, "b", bad);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_THAT(answer.error("message"), HasSubstr("state file"));
  }
  EXPECT_EQ(load(test, "a", file).status, 409);
  EXPECT_EQ(load(test, "a", file).error("param"), "id");
  EXPECT_EQ(load(test, "a%20b", file).status, 400);
  EXPECT_EQ(load(test, "a%20b", file).error("param"), "id");
  EXPECT_EQ(save(test, "none").status, 404);
  EXPECT_THAT(save(test, "none").body, HasSubstr(R"("param":"id")"));
  EXPECT_EQ(load(test, "b", file, "Origin: http://evil.org\r\n").status, 403);
  EXPECT_EQ(load(test, "b", file, "Host: evil.org\r\n").status, 403);
  EXPECT_EQ(load(test, "b", file, "Content-Encoding: gzip\r\n").status, 415);
  const std::string path = "/v1/sessions/b/state";
  EXPECT_EQ(test.ask(OpenAiServer::request("PUT", path, file)).status, 415) << "as JSON";
  EXPECT_EQ(test.ask(OpenAiServer::request("POST", path, file, kFile)).status, 405);
  for (const char* const query : {"model=other", "allow_inexact=1"}) {
    const ApiAnswer answer =
        test.ask(OpenAiServer::request("PUT", path + "?" + query, file, kFile));
    EXPECT_EQ(answer.error("param"), std::string(query).substr(0, std::string(query).find('=')));
  }
  EXPECT_EQ(test.get("/v1/sessions/a/state?model=other").error("code"), "model_not_found");
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == free; }));
  EXPECT_EQ(load(test, "b", file).status, 200);
}

TEST(HttpSessionState, ABodyThatDoesNotMatchItsLengthIsRefused) {
  OpenAiServer test(OpenAiServer::Options{}, text_model());
  feed(test, "a");
  const std::string file = save(test, "a").body;
  HttpClient early = test.client();
  std::string request = OpenAiServer::request("PUT", "/v1/sessions/b/state", file, kFile);
  early.send(request.substr(0, request.size() - 1));
  early.end_sending();
  const HttpResponse refused = early.response();
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("ends too early"));

  HttpClient slow = test.client();
  slow.send(request.substr(0, request.size() - 1));
  EXPECT_TRUE(eventually([&] {
    test.state.calls.tend_all(test.state.clock.now() + std::chrono::hours(1));
    return slow.has_answer(1);
  }));
  EXPECT_EQ(slow.response().status, 408);

  HttpClient gone = test.client();
  gone.send(request.substr(0, request.size() - 1));
  gone.reset();
  EXPECT_TRUE(eventually([&] { return test.state.calls.count() == 0; }));
  EXPECT_EQ(test.get("/v1/sessions/b").status, 404);
}

TEST(HttpSessionState, IsSavedAndNotLoadedWhileTheServerDrains) {
  OpenAiServer test(OpenAiServer::Options{}, text_model());
  feed(test, "a");
  test.state.draining = true;
  test.state.models.drain();
  const HttpResponse file = save(test, "a");
  EXPECT_EQ(file.status, 200);
  EXPECT_THAT(file.body, StartsWith("RNLSTATE"));
  EXPECT_THAT(file.head, HasSubstr("\r\nx-session-id: a\r\n"));
  EXPECT_EQ(load(test, "b", file.body).status, 503);
}

TEST(HttpSessionState, ReservesItsMemoryFirst) {
  const OpenAiServer test(OpenAiServer::Options{.call_bytes = 128 << 10}, text_model());
  EXPECT_EQ(test.post("/v1/sessions", {{"id", "a"}}).status, 200);
  const HttpResponse full = save(test, "a");
  EXPECT_EQ(full.status, 400);
  EXPECT_THAT(full.body, HasSubstr("call_bytes"));
  EXPECT_EQ(load(test, "b", "x").error("code"), "call_bytes");
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

TEST(HttpSessionState, AServerWithASealKeyAcceptsOnlyItsOwnSeal) {
  const TempDir folder;
  const std::string path = folder.path() + "/seal";
  write_file(path, std::string(32, 's'));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  Clock clock{TimePoint(std::chrono::seconds(1000))};
  OpenAiServer sealed(OpenAiServer::Options{.clock = clock}, text_model());
  sealed.state.seal_keys = read_seal_keys(path).value();
  const OpenAiServer plain(OpenAiServer::Options{}, text_model());
  feed(sealed, "a");
  feed(plain, "a");
  EXPECT_EQ(load(sealed, "b", save(sealed, "a").body).status, 200);
  EXPECT_EQ(load(sealed, "c", save(plain, "a").body).status, 400);
  EXPECT_EQ(load(plain, "c", save(sealed, "a").body).status, 400);

  const std::string file = save(sealed, "a", "?any_owner=true&expires_in=10").body;
  EXPECT_THAT(file, HasSubstr(R"("issued":1000,"expires":1010)"));
  clock.advance(std::chrono::seconds(10));
  EXPECT_THAT(load(sealed, "d", file).error("message"), HasSubstr("expired 0 seconds ago"));
  const std::string neither = save(sealed, "a", "?any_owner=1").body;
  EXPECT_THAT(neither, HasSubstr("any_owner must be true or false"));
  EXPECT_THAT(neither, HasSubstr(R"("param":"any_owner")"));
  EXPECT_EQ(save(sealed, "a", "?expires_in=10.0").status, 200);
  for (const char* const wrong : {"0", "-1", "x", "1x", "1.5", "99999999999", "2147483647"}) {
    const HttpResponse refused = save(sealed, "a", std::string("?expires_in=") + wrong);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(refused.body, HasSubstr(R"("param":"expires_in")"));
  }
  const std::string unsealed = save(plain, "a", "?expires_in=10").body;
  EXPECT_THAT(unsealed, HasSubstr("expires_in needs a seal"));
  EXPECT_THAT(unsealed, HasSubstr(R"("param":"expires_in")"));
}

TEST(HttpSessionState, RefusesAMissingKeyBeforeTheBodyArrives) {
  const TempDir folder;
  const std::string keys = folder.path() + "/keys";
  write_file(keys, "");
  ASSERT_EQ(chmod(keys.c_str(), 0600), 0);
  const OpenAiServer test(OpenAiServer::Options{.keys = keys}, text_model());
  HttpClient one = test.client();
  const std::string head = OpenAiServer::request("PUT", "/v1/sessions/b/state", "xxx", kFile);
  one.send(head.substr(0, head.size() - 3));
  EXPECT_EQ(one.response().status, 401);
}

TEST(HttpSessions, GoBackToAPosition) {
  EngineOptions options;
  options.rewind_values = 6;
  options.rewind_every = 2;
  const OpenAiServer test(OpenAiServer::Options{}, text_model(options));
  feed(test, "a", {1, 2, 3, 4, 5});
  feed(test, "b", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto rewind = [&](const Json& body) { return test.post("/v1/sessions/b/rewind", body); };
  const ApiAnswer older = rewind({{"position", 2}});
  EXPECT_EQ(older.status, 400);
  EXPECT_THAT(older.error("message"), HasSubstr("the oldest that it can go back to is 3"));
  EXPECT_EQ(older.error("param"), "position");
  const ApiAnswer ahead = rewind({{"position", 10}});
  EXPECT_EQ(ahead.status, 400);
  EXPECT_EQ(ahead.error("param"), "position");
  EXPECT_EQ(rewind(Json::object()).error("param"), "position");
  EXPECT_EQ(rewind({{"position", -1}}).error("param"), "position");
  EXPECT_EQ(rewind({{"position", 5}, {"x", 1}}).error("param"), "x");
  const ApiAnswer stands = rewind({{"position", 5}});
  EXPECT_EQ(stands.status, 200) << stands.body;
  EXPECT_EQ(stands.body["position"], 5);
  EXPECT_EQ(go_on(test, "b"), go_on(test, "a"));

  const OpenAiServer without(OpenAiServer::Options{}, text_model());
  feed(without, "b");
  const ApiAnswer off = without.post("/v1/sessions/b/rewind", {{"position", 1}});
  EXPECT_EQ(off.status, 400);
  EXPECT_THAT(off.error("message"), HasSubstr("--rewind"));
}

}  // namespace
}  // namespace runnel
