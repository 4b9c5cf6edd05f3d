#include <gmock/gmock.h>

#include <string>
#include <thread>

#include "tests/server/http/http_server_fixture.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(HttpServerTest, AnswersARequest) {
  HttpClient one = client();
  one.send(get("/hello?name=value"));
  const HttpResponse answer = one.response();
  EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
  EXPECT_THAT(answer.head, HasSubstr(" GMT\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"));
  EXPECT_EQ(answer.body, "hello");
}

TEST_F(HttpServerTest, GivesTheHandlerThePartsOfTheRequest) {
  HttpClient one(server.address(), "127.0.0.2");
  one.send("POST /echo?b HTTP/1.1\r\nHost: a\r\nX-A:  some thing \r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(one.response().body, "POST /echo?b 127.0.0.2 [some thing] [abc]");
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  HttpClient one = client();
  one.send("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n" + get("/hello"));
  EXPECT_THAT(one.response(false).head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_EQ(one.response().body, "hello");
  one.send("HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n" + get("/hello"));
  EXPECT_EQ(one.response(false).status, 404);
  EXPECT_EQ(one.response().body, "hello");
}

TEST_F(HttpServerTest, KeepsAConnectionOpenUnlessTheClientAsksToCloseIt) {
  HttpClient stays = client();
  for (int i = 0; i < 3; ++i) {
    stays.send(get("/hello"));
    EXPECT_EQ(stays.response().status, 200);
  }
  HttpClient closes = client();
  closes.send("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(closes.response().head, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(closes.is_closed());
  HttpClient old = client();
  old.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.response().head, StartsWith("HTTP/1.0 200 OK\r\n"));
  EXPECT_TRUE(old.is_closed());
}

TEST_F(HttpServerTest, AnswersDoNotDependOnHowBytesAreCut) {
  for (const std::string& request :
       {get("/hello"), post("Content-Length: 5\r\n", "12345"),
        post("Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), get("/nothing"),
        post("Transfer-Encoding: chunked\r\n", "0\r\nX: y\r\n\r\n")}) {
    HttpClient whole = client();
    whole.send(request + get("/hello"));
    HttpClient cut = client();
    for (const char byte : request) cut.send({&byte, 1});
    cut.send(get("/hello"));
    const HttpResponse expected = whole.response();
    const HttpResponse found = cut.response();
    EXPECT_GE(found.status, 200);
    EXPECT_EQ(found.status, expected.status) << request;
    EXPECT_EQ(found.body, expected.body) << request;
    EXPECT_EQ(whole.response().body, "hello");
    EXPECT_EQ(cut.response().body, "hello");
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrderOneAtATime) {
  HttpClient one = client();
  one.send(get("/later") + get("/later") + get("/hello"));
  HttpReply first = handed.take();
  HttpClient other = client();
  other.send(get("/hello"));
  EXPECT_EQ(other.response().status, 200);
  EXPECT_FALSE(handed.has_one()) << "the second waits for the answer to the first";
  first.send({200, "text/plain", "first"});
  handed.take().send({200, "text/plain", "second"});
  EXPECT_EQ(one.response().body, "first");
  EXPECT_EQ(one.response().body, "second");
  EXPECT_EQ(one.response().body, "hello");
}

TEST_F(HttpServerTest, LosesNoRequestThatArrivesDuringAnAnswer) {
  HttpClient one = client();
  one.send(get("/later"));
  HttpReply first = handed.take();
  constexpr int kMore = 2000;
  std::string more;
  for (int i = 0; i < kMore; ++i) more += get("/hello");
  std::thread sender([&] { one.send(more); });
  first.send({200, "text/plain", "first"});
  EXPECT_EQ(one.response().body, "first");
  for (int i = 0; i < kMore; ++i) ASSERT_EQ(one.response().body, "hello") << i;
  sender.join();
}

TEST_F(HttpServerTest, RefusesMalformedRequests) {
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"),
        std::string("GET\r\n\r\n"),
        std::string("GET /hello\r\n\r\n"),
        std::string("GET /hel\x01lo HTTP/1.1\r\nHost: a\r\n\r\n"),
        std::string("GET /hello HTTP/1.1\r\nHost : a\r\n\r\n"),
        std::string("GET /hello HTTP/1.1\r\nHost: a\r\nbad\r\n\r\n"),
        "GET /hello HTTP/1.1\r\nHost: a\r\nX: a" + std::string(1, '\0') + "b\r\n\r\n",
        std::string("GET /hello HTTP/1.1\r\n\r\n"),
        std::string("GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        std::string("GET /hello HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
        post("Authorization: a\r\nauthorization: a\r\n", ""),
        post("Origin: a\r\nOrigin: b\r\n", ""),
        post("Content-Type: a\r\nX: y\r\nContent-Type: a\r\n", ""),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(200, '\x7f'),
        post("Content-Length: -1\r\n", ""),
        post("Content-Length: 1x\r\n", "a"),
        post("Content-Length: 1\r\nContent-Length: 2\r\n", "ab"),
        post("Content-Length: 1\r\nContent-Length: 1\r\n", "a"),
        post("Content-Length: 1, 1\r\n", "a"),
        post("Content-Length: 1, 2\r\n", "ab"),
        post("Content-Length: 99999999999999999999\r\n", ""),
        post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\n", "x\r\n"),
        post("Transfer-Encoding: chunked\r\n", "1\r\nab\r\n0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n")}) {
    HttpClient one = client();
    one.send(bytes);
    const HttpResponse answer = one.response();
    EXPECT_EQ(answer.status, 400) << bytes;
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_THAT(answer.body, StartsWith("{\"error\":{\"message\":\""));
  }
  EXPECT_EQ(status_of("GET /hello HTTP/1.1\nHost: a\n\n"), 505) << "nothing but \\r\\n ends a line";
  EXPECT_EQ(status_of("GET /hello HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
}

TEST_F(HttpServerTest, RefusesUnknownPathsAndUnsupportedHeaders) {
  EXPECT_EQ(status_of(get("/")), 404);
  EXPECT_EQ(status_of(get("/hello/")), 404);
  EXPECT_EQ(status_of(post("Content-Length: 1\r\nExpect: miracles\r\n", "")), 417);
  for (const char* coding : {"gzip", "gzip, chunked", "identity", "chunked, gzip", ""}) {
    EXPECT_EQ(status_of(post("Transfer-Encoding: " + std::string(coding) + "\r\n", "0\r\n\r\n")),
              501)
        << coding;
  }
  EXPECT_EQ(status_of(post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "")), 501);
  EXPECT_EQ(status_of("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 501);
  HttpClient one = client();
  one.send("DELETE /echo HTTP/1.1\r\nHost: a\r\n\r\nPOST /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(one.response().head, HasSubstr("405 Method Not Allowed"));
  const HttpResponse second = one.response();
  EXPECT_THAT(second.head, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  EXPECT_THAT(second.body, StartsWith("{\"error\":{\"message\":\"this path takes GET, HEAD\""));
  HttpClient allow = client();
  allow.send("DELETE /echo HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(allow.response().head, HasSubstr("\r\nAllow: POST, GET, HEAD\r\n"));
}

TEST_F(HttpServerTest, BoundsHeaders) {
  const std::string line = "X: " + std::string(95, 'x') + "\r\n";  // 100 bytes
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += line;
  EXPECT_EQ(status_of("GET /hello HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"), 200);
  lines += line;
  const std::string longer = "GET /hello HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n";
  EXPECT_EQ(status_of(longer), 431);
  EXPECT_EQ(status_of("GET /hello HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'x')), 431);
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\n", "1;" + std::string(2000, 'x'))), 431);
  // Sends one line at a time, so the server reads each before the next one comes.
  HttpClient slow = client();
  slow.send("GET /hello HTTP/1.1\r\nHost: a\r\n");
  for (int i = 0; i < 20 && !slow.has_answer(2); ++i) slow.send(line);
  EXPECT_EQ(slow.response().status, 431);
}

TEST_F(HttpServerTest, AnswersAClientThatEndsItsSending) {
  HttpClient one = client();
  one.send(get("/hello") + get("/hello"));
  one.end_sending();
  EXPECT_EQ(one.response().body, "hello");
  EXPECT_EQ(one.response().body, "hello");
  EXPECT_TRUE(one.is_closed());
  for (const std::string& part :
       {std::string("GET /hel"), std::string("GET /hello HTTP/1.1\r\nHost: a\r\n"),
        post("Content-Length: 10\r\n", "short"),
        post("Transfer-Encoding: chunked\r\n", "a\r\nshort")}) {
    HttpClient early = client();
    early.send(part);
    early.end_sending();
    EXPECT_EQ(early.response().status, 400) << part;
    EXPECT_TRUE(early.is_closed());
  }
  HttpClient nothing = client();
  nothing.end_sending();
  EXPECT_TRUE(nothing.is_closed());
}

TEST_F(HttpServerTest, ADroppedReplyIsAnsweredWith500) {
  HttpClient one = client();
  one.send(get("/dropped") + get("/hello"));
  EXPECT_EQ(one.response().status, 500);
  EXPECT_EQ(one.response().body, "hello");
  one.send(get("/later"));
  {
    HttpReply reply = handed.take();
    reply.begin(200, "text/plain");
    reply.write("part");
  }
  EXPECT_THAT(one.read_all(), Not(HasSubstr("\r\n0\r\n")));
}

TEST_F(HttpServerTest, AStarInARouteMatchesOnePartOfThePath) {
  HttpClient one = client();
  one.send(get("/of/a%20b/part?c"));
  EXPECT_THAT(one.response().head, HasSubstr("\r\nX-Part: a%20b\r\n"));
  for (const char* const path : {"/of//part", "/of/part", "/of/a/b/part", "/of/a/part/", "/of/a"}) {
    EXPECT_EQ(status_of(get(path)), 404) << path;
  }
}

}  // namespace
}  // namespace runnel
