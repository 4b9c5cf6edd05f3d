// All routes except completions, and the gate before them.

#include "server/process/http_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "server/http/header_text.h"
#include "tests/base/eventually.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(OpenAiRoutes, ModelsAreListedAndFoundByName) {
  const OpenAiServer test;
  const ApiAnswer list = test.get("/v1/models");
  ASSERT_EQ(list.status, 200);
  ASSERT_EQ(list.body["data"].size(), 1U);
  EXPECT_EQ(list.body["data"][0]["id"], "fake");
  EXPECT_EQ(list.body["data"][0]["object"], "model");
  EXPECT_EQ(test.get("/v1/models/fake").body, list.body["data"][0]);
  EXPECT_EQ(test.get("/v1/models/%66ake").status, 200);
  const ApiAnswer none = test.get("/v1/models/other");
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(none.error("code"), "model_not_found");
  EXPECT_EQ(test.get("/v1/models/fake/more").status, 404);
  EXPECT_EQ(test.get("/v1/completions").status, 405);
}

TEST(OpenAiRoutes, TextBecomesTokensAndTokensText) {
  const OpenAiServer test;
  const ApiAnswer tokens = test.post("/tokenize", {{"model", "fake"}, {"prompt", "a\u00e9"}});
  EXPECT_EQ(tokens.body["tokens"], Json({97, 0xC3, 0xA9}));
  EXPECT_EQ(tokens.body["count"], 3);
  EXPECT_EQ(test.post("/tokenize", {{"content", "a"}}).body["tokens"], Json::array({97}));
  const Json text = test.post("/detokenize", {{"tokens", {97, 0xC3, 0xA9, 0xC3}}}).body;
  EXPECT_EQ(text["prompt"], "a\u00e9\ufffd");
  EXPECT_EQ(text["content"], text["prompt"]);
  EXPECT_EQ(test.post("/tokenize", Json::object()).error("param"), "prompt");
  const ApiAnswer both = test.post("/tokenize", {{"prompt", "a"}, {"content", "b"}});
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.error("param"), "content");
  EXPECT_EQ(both.error("message"), "content cannot be combined with prompt; leave one of them out");
  EXPECT_EQ(test.post("/tokenize", {{"prompt", "a"}, {"content", nullptr}}).status, 200);
  EXPECT_EQ(test.post("/tokenize", {{"prompt", std::string(1001, 'a')}}).status, 400);
  EXPECT_EQ(test.post("/tokenize", {{"prompt", "a"}, {"add_special_tokens", true}}).status, 400);
  EXPECT_EQ(test.post("/detokenize", {{"tokens", {-1}}}).error("param"), "tokens");
  const ApiAnswer unknown = test.post("/detokenize", {{"tokens", {97, 256}}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(unknown.error("param"), "tokens");
  EXPECT_THAT(unknown.error("message"), HasSubstr("has tokens 0 to 255"));
  EXPECT_EQ(test.post("/detokenize", Json::object()).error("param"), "tokens");
}

TEST(OpenAiRoutes, ATokenizerIsDescribedAsEvaluationsAskForIt) {
  Spec spec = byte_spec();
  spec.eos = {'!'};
  const OpenAiServer test({}, {}, spec);
  const Json info = test.get("/tokenizer_info?model=fake").body;
  EXPECT_EQ(info, (Json{{"bos_token", nullptr}, {"eos_token", "!"}}));
  EXPECT_EQ(test.get("/tokenizer_info?model=other").status, 404);
  EXPECT_EQ(OpenAiServer().get("/tokenizer_info").body["eos_token"], Json());
}

TEST(OpenAiRoutes, TokensMustNotDecodeToMoreTextThanAPromptMayHave) {
  const OpenAiServer test;
  const auto text_of = [&](int32_t token, size_t count) {
    return test.post("/detokenize", {{"tokens", std::vector<int32_t>(count, token)}});
  };
  EXPECT_EQ(text_of('a', 1000).body["content"], std::string(1000, 'a'));
  EXPECT_EQ(text_of('a', 1001).error("param"), "tokens");
  EXPECT_EQ(text_of(0xC3, 334).status, 400) << "each of which is written as a character of 3 bytes";
}

TEST(OpenAiRoutes, DetokenizingReservesTheMemoryOfItsAnswer) {
  const OpenAiServer test(OpenAiServer::Options{.call_bytes = 100 << 10});
  Json body = {{"tokens", {1, 2, 3}}};
  EXPECT_EQ(test.post("/detokenize", body).status, 200);
  body["tokens"] = std::vector<int32_t>(400, 1);
  EXPECT_EQ(test.post("/detokenize", body).error("code"), "call_bytes");
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

TEST(OpenAiRoutes, NothingIsServedBeforeTheModelsAreLoaded) {
  std::ostringstream text;
  const EventLog log("debug", false, text);
  ServerContext state(log);
  HttpServer server({.connections = {.in_all = 4}, .body_bytes = 1000},
                    http_routes(state, Gate("", "")), log);
  EXPECT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  for (const char* const path : {"/v1/models", "/v1/models/fake"}) {
    HttpClient client(server.address());
    client.send(OpenAiServer::request("GET", path));
    EXPECT_EQ(client.response().status, 503);
  }
}

// --- The description ---

bool is_of_page(const HttpRoute& route) {
  return route.path == "/" || route.path.starts_with("/page/");
}

TEST(OpenApi, DescribesEveryRouteAndNoOther) {
  const OpenAiServer test;
  const Json description = test.get("/openapi.json").body;
  std::set<std::string> described;
  for (const auto& [path, operations] : description["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (method != "parameters") described.insert(method + " " + path);
    }
  }
  std::set<std::string> served;
  ServerContext state(test.log);
  for (const HttpRoute& route : http_routes(state, Gate("", ""))) {
    if (is_of_page(route) || route.method == "OPTIONS") continue;
    std::string path = route.path;
    if (const size_t star = path.find('*'); star != std::string::npos) {
      path.replace(star, 1,
                   path.starts_with("/v1/models")      ? "{model}"
                   : path.starts_with("/v1/responses") ? "{response}"
                                                       : "{session}");
    }
    served.insert(lower(route.method) + " " + path);
  }
  EXPECT_EQ(described, served);
}

void collect_references(const Json& node, std::set<std::string>& found) {
  for (const auto& [key, value] : node.items()) {
    if (key == "$ref") found.insert(value.get<std::string>());
    if (value.is_structured()) collect_references(value, found);
  }
}

// Each API describes its own paths, and some components are shared.
TEST(OpenApi, EveryReferenceExists) {
  const OpenAiServer test;
  const Json description = test.get("/openapi.json").body;
  std::set<std::string> references;
  collect_references(description, references);
  EXPECT_GT(references.size(), 40U);
  for (const std::string& reference : references) {
    EXPECT_TRUE(description.contains(Json::json_pointer(reference.substr(1)))) << reference;
  }
}

TEST(OpenApi, DescribesFieldsThatAreKnown) {
  const OpenAiServer test;
  const Json schemas = test.get("/openapi.json").body["components"]["schemas"];
  Json completion = {{"prompt", "a"}};
  for (const auto& [name, schema] : schemas["CompletionRequest"]["properties"].items()) {
    if (name != "prompt") completion[name] = nullptr;
  }
  EXPECT_EQ(test.complete(completion).status, 200);
  EXPECT_GT(completion.size(), 20U);
  Json chat = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  for (const auto& [name, schema] : schemas["ChatRequest"]["properties"].items()) {
    if (name != "messages") chat[name] = nullptr;
  }
  EXPECT_EQ(test.post("/v1/chat/completions", chat).status, 404) << "it has no template";
  EXPECT_GT(chat.size(), 20U);
  Json response = {{"input", "a"}};
  for (const auto& [name, schema] : schemas["ResponseRequest"]["properties"].items()) {
    if (name != "input") response[name] = nullptr;
  }
  EXPECT_EQ(test.post("/v1/responses", response).status, 404) << "likewise";
  EXPECT_GT(response.size(), 20U);
  Json drawing = Json::object();
  for (const auto& [name, schema] : schemas["ImageRequest"]["properties"].items()) {
    drawing[name] = nullptr;
  }
  EXPECT_EQ(test.post("/v1/images/generations", drawing).error("param"), "model") << "it has text";
  EXPECT_GT(drawing.size(), 15U);
}

// --- The gate ---

ApiAnswer list_with(const OpenAiServer& test, const std::string& headers) {
  return test.ask(OpenAiServer::request("GET", "/v1/models", "", headers));
}

TEST(Gate, OnlyHostsOfTheServerAreAccepted) {
  const OpenAiServer test(OpenAiServer::Options{.hosts = "api.example.org, other.example.org"});
  for (const char* const host : {"localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:80",
                                 "localhost.:80", "api.example.org", "other.example.org:443"}) {
    EXPECT_EQ(list_with(test, std::string("Host: ") + host + "\r\n").status, 200) << host;
  }
  for (const char* const host : {"example.org", "evil.org", "localhost.evil.org", "127.0.0.2",
                                 "[::2]", "", "api.example.org.evil.org"}) {
    EXPECT_EQ(list_with(test, std::string("Host: ") + host + "\r\n").status, 403) << host;
  }
  const std::string refused = list_with(test, "Host: evil.org:80\r\n").error("message");
  EXPECT_THAT(refused, HasSubstr("is 'evil.org:80', which"));
  EXPECT_THAT(refused, HasSubstr("--http-hosts"));
  // The host of a target overrides the header.
  const auto ask = [&](const std::string& target) {
    return test.ask(OpenAiServer::request("GET", target, "", "Host: localhost\r\n")).status;
  };
  EXPECT_EQ(ask("http://evil.org/v1/models"), 403);
  EXPECT_EQ(ask("http://localhost:8000/v1/models"), 200);
}

TEST(Gate, ForeignPagesAreRefused) {
  const OpenAiServer test(OpenAiServer::Options{.origins = "https://app.example.org"});
  const std::string host = "Host: localhost:8000\r\nOrigin: ";
  EXPECT_EQ(list_with(test, host + "http://localhost:8000\r\n").status, 200);
  const ApiAnswer named = list_with(test, host + "https://app.example.org\r\n");
  EXPECT_EQ(named.status, 200);
  EXPECT_THAT(named.head, HasSubstr("Access-Control-Allow-Origin: https://app.example.org\r\n"));
  for (const char* const origin : {"http://localhost:9000", "https://evil.org", "null",
                                   "https://app.example.org.evil.org", "http://app.example.org"}) {
    const ApiAnswer refused = list_with(test, host + origin + "\r\n");
    EXPECT_EQ(refused.status, 403) << origin;
    EXPECT_THAT(refused.head, Not(HasSubstr("Access-Control")));
  }
}

TEST(Gate, PreflightRequestsAreAnsweredWithTheAllowedHeaders) {
  const OpenAiServer test(OpenAiServer::Options{.origins = "https://app.example.org"});
  const auto ask = [&](const std::string& path, const std::string& headers,
                       const std::string& origin = "https://app.example.org") {
    return test.ask(OpenAiServer::request(
        "OPTIONS", path, "",
        "Origin: " + origin + "\r\nAccess-Control-Request-Method: POST\r\n" + headers));
  };
  const std::string names = "authorization,content-type,x-stainless-os,x-stainless-retry-count";
  const ApiAnswer named =
      ask("/v1/completions", "Access-Control-Request-Headers: " + names + "\r\n");
  EXPECT_EQ(named.status, 204);
  EXPECT_THAT(named.head, HasSubstr("Access-Control-Allow-Headers: " + names + "\r\n"));
  EXPECT_THAT(named.head,
              HasSubstr("Access-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n"));
  EXPECT_THAT(named.head, HasSubstr("Access-Control-Allow-Origin: https://app.example.org\r\n"));
  EXPECT_THAT(ask("/v1/sessions/a", "").head, HasSubstr("GET, HEAD, DELETE"));
  EXPECT_THAT(ask("/none", "").head, HasSubstr("Access-Control-Allow-Methods: GET, HEAD, POST"));
  EXPECT_THAT(ask("/v1/completions", "Access-Control-Request-Headers: a;b\r\n").head,
              HasSubstr("Access-Control-Allow-Headers: Authorization, Content-Type\r\n"));
  EXPECT_EQ(ask("/v1/completions", "", "https://evil.org").status, 403);
}

// Whatever the status is, pages of an allowed origin can read the answer.
TEST(Gate, PagesOfAllowedOriginsCanReadEveryAnswer) {
  const OpenAiServer test(OpenAiServer::Options{.keys = "", .origins = "https://app.example.org"});
  const std::string origin = "Origin: https://app.example.org\r\n";
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + origin;
  const std::string json = "Content-Type: application/json\r\n";
  const std::pair<int, std::string> requests[] = {
      {200, OpenAiServer::request("GET", "/v1/models", "", origin)},
      {400, OpenAiServer::request("POST", "/v1/completions", "{", origin)},
      {400, OpenAiServer::request("GET", "v1/models", "", origin)},
      {403, OpenAiServer::request("GET", "/v1/models", "", "Host: evil.org\r\n" + origin)},
      {404, OpenAiServer::request("GET", "/none", "", origin)},
      {405, OpenAiServer::request("PUT", "/v1/models", "", origin)},
      {413, post + json + "Content-Length: 9999999\r\n\r\n"},
      {415, post + "Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"},
      {501, OpenAiServer::request("BREW", "/v1/models", "", origin)}};
  for (const auto& [status, request] : requests) {
    const ApiAnswer answer = test.ask(request);
    EXPECT_EQ(answer.status, status) << request;
    EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Origin: https://app.example.org\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("Access-Control-Expose-Headers: Retry-After, "));
    EXPECT_THAT(answer.head, HasSubstr("Vary: Origin\r\n"));
  }
  EXPECT_THAT(test.get("/v1/models").head, HasSubstr("Vary: Origin\r\n"));
}

// A browser lets any page send a form, or text, to any server without asking the server first.
TEST(Gate, APostIsJsonInUtf8) {
  const OpenAiServer test;
  const auto status_of = [&](const std::string& headers) {
    return test.post("/tokenize", {{"prompt", "a"}}, headers).status;
  };
  for (const char* const type : {"application/json", "Application/JSON; charset=UTF-8",
                                 "application/json;charset=\"utf-8\""}) {
    EXPECT_EQ(status_of(std::string("Content-Type: ") + type + "\r\n"), 200) << type;
  }
  for (const char* const type : {"text/plain", "application/x-www-form-urlencoded", "",
                                 "application/json; charset=utf-16", "application/jsonx"}) {
    EXPECT_EQ(status_of(std::string("Content-Type: ") + type + "\r\n"), 415) << type;
  }
  EXPECT_EQ(status_of("Content-Encoding: gzip\r\n"), 415);
  EXPECT_THAT(test.post("/tokenize", {{"prompt", "a"}}, "Content-Encoding: gzip\r\n").head,
              HasSubstr("Accept-Encoding: identity\r\n"));
  EXPECT_EQ(status_of("Content-Encoding: identity\r\n"), 200);
}

TEST(OpenAiRoutes, EveryRequestIsReported) {
  const OpenAiServer test(OpenAiServer::Options{.origins = "https://app.example.org"});
  const auto expect_line = [&](const std::string& bytes, int status, const std::string& line) {
    EXPECT_EQ(test.ask(bytes).status, status) << bytes;
    EXPECT_THAT(test.log_text.str(), HasSubstr(line));
  };
  const std::string no_model = " model=\"\" caller=\"\" peer=127.0.0.1 code=";
  const auto refused = [&](const std::string& code) {
    return "rpc=http.refused" + no_model + code;
  };
  const auto request = OpenAiServer::request;
  expect_line(request("GET", "/none", "", ""), 404, refused("NOT_FOUND"));
  expect_line(request("DELETE", "/v1/models", "", ""), 405, refused("UNIMPLEMENTED"));
  expect_line(request("GET", "/v1/models", "", "Host: evil.org\r\n"), 403,
              refused("PERMISSION_DENIED"));
  expect_line(request("POST", "/tokenize", "", "Content-Type: text/plain\r\n"), 415,
              refused("INVALID_ARGUMENT"));
  EXPECT_THAT(test.log_text.str(), HasSubstr("Content-Type must be application/json"));
  expect_line(request("GET", "/openapi.json", "", ""), 200, "rpc=openai.openapi" + no_model + "OK");
  expect_line(request("OPTIONS", "/v1/models", "", "Origin: https://app.example.org\r\n"), 204,
              "rpc=http.options" + no_model + "OK");
  const auto of_method = [&](std::string_view name, Code code) {
    const auto method = std::ranges::find(kMethods, name) - kMethods.begin();
    return test.state.metrics.calls.ended[method][static_cast<size_t>(code)].value();
  };
  EXPECT_EQ(of_method("http.refused", Code::kNotFound), 1);
  EXPECT_EQ(of_method("http.options", Code::kOk), 1);
}

TEST(OpenAiRoutes, EveryRouteIsCountedByItsName) {
  std::ostringstream text;
  const EventLog log("debug", false, text);
  ServerContext state(log);  // has no models: every call is refused, but counted
  HttpServer server({.connections = {.in_all = 128}, .body_bytes = 1000},
                    http_routes(state, Gate("", "")), log);
  ASSERT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  const auto ended = [&](size_t method) {
    const auto& codes = state.metrics.calls.ended[method];
    return std::accumulate(codes.begin(), codes.end(), int64_t{0},
                           [](int64_t sum, const Counter& code) { return sum + code.value(); });
  };
  int64_t asked = 0;
  for (const HttpRoute& route : http_routes(state, Gate("", ""))) {
    if (is_of_page(route)) continue;  // files of the page are not counted
    std::string path = route.path;
    if (path == "**") {
      path = "/x";
    } else if (const size_t star = path.find('*'); star != std::string::npos) {
      path.replace(star, 1, "x");
    }
    const bool has_body = route.method == "POST" || route.method == "PUT";
    HttpClient client(server.address());
    client.send(
        OpenAiServer::request(route.method, path, has_body ? "{}" : "",
                              route.in_pieces ? "Content-Type: application/octet-stream\r\n" : ""));
    EXPECT_NE(client.response().status, 415) << route.method << " " << path;
    int64_t counted = 0;
    for (size_t method = 0; method < kMethods.size(); ++method) counted += ended(method);
    EXPECT_EQ(counted, ++asked) << route.method << " " << path;
    EXPECT_EQ(ended(kMethods.size() - 1), 0) << route.method << " " << path;
  }
  server.stop();
  EXPECT_TRUE(state.calls.wait_until_none(kPatience));
}

TEST(HeaderText, PercentEscapesBecomeBytes) {
  EXPECT_EQ(unescaped("a%3Ab%2fc"), "a:b/c");
  EXPECT_EQ(unescaped("%"), "%");
  EXPECT_EQ(unescaped("%4"), "%4");
  EXPECT_EQ(unescaped("%zz%41"), "%zzA");
}

}  // namespace
}  // namespace runnel
