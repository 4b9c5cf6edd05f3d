// Requirements of RFC 9110 and RFC 9112 for servers. docs/http.md lists them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <sstream>

#include "server/http/http_server.h"
#include "tests/base/eventually.h"
#include "tests/server/http/http_client.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpConformance : public ::testing::Test {
 protected:
  HttpConformance()
      : server_({.connections = {.in_all = 16}, .header_bytes = 1024, .body_bytes = 100}, routes(),
                log_, {.headers_for = [](const HttpHeaderOf& header) {
                  return HttpHeaders{{"X-Seen", std::string(header("x-a"))}};
                }}) {
    EXPECT_TRUE(server_.start(listen_on("127.0.0.1:0").value()).ok());
  }

  std::vector<HttpRoute> routes() {
    return {
        {"GET", "/",
         [](const HttpRequest& request, HttpReply reply) {
           reply.send({200, "text/plain",
                       std::string(request.header("Host")) + " " + std::string(request.target)});
         }},
        {"GET", "/hello",
         [](const HttpRequest& request, HttpReply reply) {
           reply.send({200, "text/plain",
                       std::string(request.header("host")) + " " + std::string(request.target)});
         }},
        {"POST", "/echo",
         [](const HttpRequest& request, HttpReply reply) {
           reply.send({200, "text/plain", std::string(request.body)});
         }},
        {"GET", "/later",
         [this](const HttpRequest&, HttpReply reply) {
           reply.on_gone([this] { ++gone_; });
           std::lock_guard lock(mutex_);
           reply_ = std::move(reply);
         }},
        {"OPTIONS", "**", [](const HttpRequest& request, HttpReply reply) {
           reply.set_header("Allow", std::string(request.allow));
           reply.send({204, "text/plain", ""});
         }}};
  }

  // The reply to a request to /later.
  HttpReply take() {
    EXPECT_TRUE(eventually([&] {
      std::lock_guard lock(mutex_);
      return reply_.has_value();
    }));
    std::lock_guard lock(mutex_);
    return *std::exchange(reply_, std::nullopt);
  }

  HttpResponse ask(const std::string& bytes) const {
    HttpClient client(server_.address());
    client.send(bytes);
    return client.response();
  }
  int status_of(const std::string& bytes) const { return ask(bytes).status; }
  // A GET request for a target.
  HttpResponse get(const std::string& target, const std::string& host = "a") const {
    return ask("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  }

  std::ostringstream text_;
  const EventLog log_{"info", false, text_};
  std::mutex mutex_;
  std::optional<HttpReply> reply_;
  std::atomic<int> gone_{0};
  HttpServer server_;
};

TEST_F(HttpConformance, ATargetMayBeAUriWhoseHostReplacesTheHeader) {
  EXPECT_EQ(get("http://b.example:80/hello?x=1").body, "b.example:80 /hello?x=1");
  EXPECT_EQ(get("HTTP://b/hello").body, "b /hello");
  EXPECT_EQ(get("https://[::1]:8000/hello").body, "[::1]:8000 /hello");
  EXPECT_EQ(get("http://b").status, 200);
  EXPECT_EQ(get("http://b?x=1").status, 200);
  EXPECT_EQ(get("http://b/none").status, 404);
}

TEST_F(HttpConformance, ATargetOfAnotherFormIsABadRequest) {
  for (const char* target : {"hello", "*", "?x", "/hello#part", "http://", "http:///hello",
                             "http://user@b/hello", "http://b:x/hello", "ftp://b/hello", "b:80"}) {
    EXPECT_EQ(get(target).status, 400) << target;
  }
}

TEST_F(HttpConformance, AHostIsANameOrAnAddressWithOrWithoutAPort) {
  for (const char* host : {"a", "a.example.", "A-b_c~1:80", "a:", "127.0.0.1:1", "[::1]",
                           "[fe80::1.2.3.4]:80", "", "a%20b"}) {
    EXPECT_EQ(get("/hello", host).status, 200) << host;
  }
  for (const char* host : {"a b", "a/b", "a:b", "a:80:80", "[::1", "[]", "[::g]", "[::1]80", "a\"b",
                           "a@b", "a\\b", "a\xff", "http://a"}) {
    EXPECT_EQ(get("/hello", host).status, 400) << host;
  }
}

TEST_F(HttpConformance, UnknownMethodsGet501AndMethodsOfOtherRoutes405) {
  for (const char* method : {"BREW", "get", "PROPFIND", "GETS"}) {
    EXPECT_EQ(status_of(method + std::string(" /hello HTTP/1.1\r\nHost: a\r\n\r\n")), 501)
        << method;
  }
  for (const char* method : {"POST", "PATCH", "TRACE", "DELETE"}) {
    const HttpResponse answer = ask(method + std::string(" /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_THAT(answer.head, HasSubstr("\r\nAllow: GET, HEAD, OPTIONS\r\n")) << method;
  }
  EXPECT_EQ(status_of("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

TEST_F(HttpConformance, OptionsListsTheMethodsOfAPathAndOfTheServer) {
  const HttpResponse hello = ask("OPTIONS /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(hello.status, 204);
  EXPECT_THAT(hello.head, HasSubstr("\r\nAllow: GET, HEAD, OPTIONS\r\n"));
  EXPECT_THAT(ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").head,
              HasSubstr("\r\nAllow: OPTIONS\r\n"));
  EXPECT_EQ(status_of("OPTIONS /none HTTP/1.1\r\nHost: a\r\n\r\n"), 204);
  EXPECT_EQ(status_of("POST /none HTTP/1.1\r\nHost: a\r\n\r\n"), 404);
}

TEST_F(HttpConformance, AnAnswerWithoutABodyHasNoLength) {
  HttpClient client(server_.address());
  client.send("OPTIONS /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  const HttpResponse first = client.response(false);
  EXPECT_THAT(first.head, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(first.head, Not(HasSubstr("Content-Type")));
  EXPECT_THAT(first.head, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_EQ(client.response().body, "a /hello");
}

TEST_F(HttpConformance, ALaterVersionOfHttp1IsServed) {
  for (const char* version : {"HTTP/1.2", "HTTP/1.9"}) {
    const HttpResponse answer = ask(std::string("GET /hello ") + version + "\r\nHost: a\r\n\r\n");
    EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 200 OK\r\n")) << version;
  }
  for (const char* version : {"HTTP/2.0", "HTTP/0.9", "HTTP/1.x", "HTTP/1", "HTTP/1.10"}) {
    const int status = status_of(std::string("GET /hello ") + version + "\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(status == 400 || status == 505) << version << " " << status;
  }
  for (const char* end : {"", "\r"}) {  // the line arrives in two parts
    HttpClient client(server_.address());
    client.send(std::string("GET /hello HTTP/1.2") + end);
    EXPECT_FALSE(client.has_answer(100));
    client.send(std::string("\r\nHost: a\r\n\r\n").substr(std::string_view(end).size()));
    EXPECT_EQ(client.response().status, 200);
  }
}

TEST_F(HttpConformance, EmptyLinesBeforeARequestAreSkipped) {
  HttpClient client(server_.address());
  client.send("\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab\r\n");
  EXPECT_EQ(client.response().body, "ab");
  client.send("\r");
  client.send("\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(HttpConformance, LinesMustEndWithCarriageReturnAndLineFeed) {
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& bytes :
       {std::string("GET /hello HTTP/1.1\nHost: a\n\n"),
        std::string("GET /hello HTTP/1.1\r\nHost: a\n\r\n"),
        std::string("GET /hello HTTP/1.1\r\nHost: a\r\n\n"), chunked + "2\nab\n0\n\n",
        chunked + "2;x=\"\n\"\r\nab\r\n0\r\n\r\n", chunked + "2\r\nab\r\n0;x=\"\n\"\r\n\r\n",
        chunked + "2\r\nab\r\n0\r\nX: y\n\n"}) {
    const int status = status_of(bytes);
    EXPECT_TRUE(status == 400 || status == 505) << bytes << status;
  }
}

TEST_F(HttpConformance, ATargetThatIsTooLongHasAStatusOfItsOwn) {
  EXPECT_EQ(get("/" + std::string(2000, 'x')).status, 414);
  EXPECT_EQ(status_of("GET /" + std::string(2000, 'x')), 414) << "before its end has come";
  const std::string rest = "lo HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'x');
  EXPECT_EQ(status_of("GET /hel" + rest), 431);
  HttpClient client(server_.address());
  client.send("GET /hel");  // the line arrives in two parts
  EXPECT_FALSE(client.has_answer(100));
  client.send(rest);
  const HttpResponse answer = client.response();
  EXPECT_EQ(answer.status, 431);
  EXPECT_THAT(answer.body, HasSubstr("the request line and the headers have more than"));
}

TEST_F(HttpConformance, EveryAnswerCanUseTheHeadersOfItsRequest) {
  const std::string rest = " HTTP/1.1\r\nHost: a\r\nX-A: seen\r\n";
  const std::string requests[] = {
      "GET /hello" + rest + "\r\n",                                           // 200
      "GET hello" + rest + "\r\n",                                            // 400
      "GET /none" + rest + "\r\n",                                            // 404
      "POST /hello" + rest + "\r\n",                                          // 405
      "POST /echo" + rest + "Content-Length: 101\r\n\r\n",                    // 413
      "POST /echo" + rest + "Content-Length: 1\r\nExpect: miracles\r\n\r\n",  // 417
      "BREW /hello" + rest + "\r\n"};                                         // 501
  for (const std::string& request : requests) {
    EXPECT_THAT(ask(request).head, HasSubstr("\r\nX-Seen: seen\r\n")) << request;
  }
}

TEST_F(HttpConformance, AClientThatEndsItsSendingIsAnswered) {
  HttpClient client(server_.address());
  client.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  HttpReply reply = take();
  client.end_sending();
  // An interim answer shows the server whether the client still reads.
  EXPECT_EQ(client.read(25), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(gone_, 0);
  reply.send({200, "text/plain", "here"});
  std::string rest = client.read_all();
  while (rest.starts_with("HTTP/1.1 100 Continue\r\n\r\n")) rest.erase(0, 25);
  EXPECT_THAT(rest, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(rest, HasSubstr("\r\n\r\nhere"));
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpConformance, AStreamContinuesForAClientThatEndsItsSending) {
  HttpClient client(server_.address());
  client.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  HttpReply reply = take();
  reply.begin(200, "text/plain");
  EXPECT_EQ(client.response(false).status, 200);
  client.end_sending();
  reply.write("one");
  EXPECT_EQ(client.read(8), "3\r\none\r\n");
  reply.write("two");
  reply.end();
  EXPECT_EQ(client.read_all(), "3\r\ntwo\r\n0\r\n\r\n");
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpConformance, DetectsThatAClientHasClosedItsSocket) {
  int gone = 0;
  for (const bool streams : {false, true}) {
    std::optional<HttpClient> client(server_.address());
    client->send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    HttpReply reply = take();
    if (streams) {
      reply.begin(200, "text/plain");
      EXPECT_EQ(client->response(false).status, 200);
    }
    client.reset();
    ++gone;
    if (streams) reply.write("nobody reads this");
    EXPECT_TRUE(eventually([&] { return gone_ == gone; })) << streams;
    if (!streams) reply.send({200, "text/plain", "nor this"});
  }
}

}  // namespace
}  // namespace runnel
