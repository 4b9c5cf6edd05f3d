#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>

#include "tests/base/eventually.h"
#include "tests/server/http/http_server_fixture.h"

namespace runnel {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Asks for the next piece of a body. The future gets the piece, or "!" and an error message.
std::future<std::string> ask_for_piece(HttpReply& reply) {
  const auto told = std::make_shared<std::promise<std::string>>();
  reply.read([told](HttpPiece next) {
    told->set_value(next.ok() ? std::string(*next) : "!" + next.status().message());
  });
  return told->get_future();
}

std::string piece_of(HttpReply& reply) {
  auto piece = ask_for_piece(reply);
  return piece.wait_for(kPatience) == std::future_status::ready ? piece.get() : "nothing came";
}

// The whole body, or "!" and the error message of the first piece that failed.
std::string pieces_of(HttpReply& reply) {
  std::string body;
  for (std::string piece; !(piece = piece_of(reply)).empty(); body += piece) {
    if (piece.front() == '!') return piece;
    EXPECT_LE(piece.size(), 4096U);
  }
  return body;
}

std::string put(const std::string& headers) {
  return "PUT /pieces HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n";
}

TEST_F(HttpServerTest, ABodyIsTakenInPiecesAndMayBeLonger) {
  const std::string body(10'000, 'x');
  std::string chunks;
  for (int i = 0; i < 100; ++i) chunks += "64;a=b\r\n" + body.substr(0, 100) + "\r\n";
  for (const std::string& bytes : {put("Content-Length: 10000\r\n") + body,
                                   put("Transfer-Encoding: chunked\r\n") + chunks + "0\r\n\r\n"}) {
    HttpClient one = client();
    one.send(bytes);
    HttpReply reply = handed.take();
    EXPECT_EQ(pieces_of(reply), body);
    EXPECT_EQ(piece_of(reply), "") << "the end stays";
    reply.send({200, "text/plain", "taken"});
    const HttpResponse response = one.response();
    EXPECT_EQ(response.body, "taken");
    EXPECT_THAT(response.head, HasSubstr("Connection: close"));
    EXPECT_TRUE(one.is_closed());
  }
  HttpClient none = client();
  none.send(put("Content-Length: 0\r\n"));
  HttpReply reply = handed.take();
  EXPECT_EQ(piece_of(reply), "");
}

TEST_F(HttpServerTest, AClientThatIsRefusedIsNotAskedForTheBody) {
  HttpClient one = client();
  one.send(put("Content-Length: 10\r\nExpect: 100-continue\r\n"));
  handed.take().send({401, "text/plain", "no key"});
  EXPECT_EQ(one.response().status, 401);
}

TEST_F(HttpServerTest, PiecesOfABodyArriveAtOnceAndItsEndIsReported) {
  HttpClient one = client();
  one.send(put("Content-Length: 10\r\nExpect: 100-continue\r\n"));
  HttpReply reply = handed.take();
  auto first = ask_for_piece(reply);
  EXPECT_EQ(one.response().status, 100);
  one.send("abc");
  EXPECT_EQ(first.get(), "abc");
  one.send("def");
  one.end_sending();
  std::string rest = piece_of(reply);
  if (rest.size() < 3) rest += piece_of(reply);
  EXPECT_EQ(rest, "def");
  EXPECT_EQ(piece_of(reply), "!the body ends too early");
  reply.send({400, "text/plain", ""});
  EXPECT_EQ(one.response().status, 400);
  HttpClient other = client();
  other.send(put("Content-Length: 10\r\n"));
  HttpReply gone = handed.take();
  other.reset();
  EXPECT_THAT(piece_of(gone), StartsWith("!"));
  EXPECT_THAT(piece_of(gone), StartsWith("!")) << "and again";
}

TEST_F(HttpServerTest, MalformedBodiesInPiecesAreReported) {
  for (const std::string& body :
       {std::string("x\r\n"), "1;" + std::string(9000, 'x'),
        std::string("1;x=\"\n\"\r\na\r\n0\r\n\r\n"), "3\r\nabcd\r\n" + std::string("0\r\n\r\n"),
        "0\r\n" + std::string(9000, 'x')}) {
    HttpClient one = client();
    one.send(put("Transfer-Encoding: chunked\r\n") + body);
    HttpReply reply = handed.take();
    EXPECT_THAT(pieces_of(reply), StartsWith("!the body is not HTTP/1.1")) << body.substr(0, 9);
  }
}

TEST_F(HttpServerTest, AnAnswerMayComeBeforeABodyInPieces) {
  HttpClient one = client();
  one.send(put("Content-Length: 100000000\r\n") + "abc");
  handed.take().send({403, "text/plain", ""});
  one.send(std::string(1000, 'x'));
  EXPECT_EQ(one.response().status, 403);
}

// Sends a request to /echo. The body of the answer ends with the header X-A and the body of the
// request, each in brackets.
std::string echo_of(HttpClient& one, const std::string& request) {
  one.send(request);
  return one.response().body;
}

TEST_F(HttpServerTest, TakesBodiesByLengthAndInChunks) {
  HttpClient one = client();
  EXPECT_THAT(echo_of(one, post("Content-Length: 0\r\n", "")), EndsWith(" []"));
  EXPECT_THAT(echo_of(one, post("", "")), EndsWith(" []"));
  const std::string chunks = "3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n";
  EXPECT_THAT(echo_of(one, post("Transfer-Encoding: Chunked\r\n", chunks)), EndsWith(" [abcde]"));
  const std::string body(1000, 'z');
  EXPECT_THAT(echo_of(one, post("Content-Length: 1000\r\n", body)), EndsWith("[" + body + "]"));
  one.send(post("Content-Length: 2\r\nExpect: 100-continue\r\n", ""));
  EXPECT_EQ(one.response().status, 100);
  EXPECT_THAT(echo_of(one, "ok"), EndsWith(" [ok]"));
  // HTTP/1.0 has no interim answers.
  EXPECT_THAT(
      echo_of(one, "POST /echo HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok"),
      EndsWith(" [ok]"));
}

// A proxy checks the headers, and may not read the lines after a body.
TEST_F(HttpServerTest, ATrailerIsNotAHeader) {
  HttpClient one = client();
  const auto with_trailer = [](const std::string& headers, const std::string& trailer) {
    return post(headers + "Transfer-Encoding: chunked\r\n",
                "1\r\na\r\n0\r\n" + trailer + "\r\n\r\n");
  };
  EXPECT_THAT(echo_of(one, with_trailer("", "X-A: b")), EndsWith(" [] [a]"));
  EXPECT_THAT(echo_of(one, with_trailer("X-A: c\r\n", "X-B: d")), EndsWith(" [c] [a]"));
}

TEST_F(HttpServerTest, BoundsBodies) {
  EXPECT_EQ(status_of(post("Content-Length: 1001\r\n", "")), 413) << "before the body";
  EXPECT_EQ(status_of(post("Content-Length: 1001\r\nExpect: 100-continue\r\n", "")), 413);
  std::string chunks;
  for (int i = 0; i < 10; ++i) chunks += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n")), 200);
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\n", chunks + "1\r\n")), 413);
  // The body exceeds the socket buffers, but the client still gets the answer.
  HttpClient one = client();
  one.send(post("Content-Length: 4000000\r\n", std::string(4000000, 'x')));
  EXPECT_EQ(one.response().status, 413);
}

// Bytes that a client hides in the body of a refused request are not read as another request.
TEST_F(HttpServerTest, ClosesTheConnectionInsteadOfReadingTheBodyOfARefusedRequest) {
  for (const std::string refused :
       {"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 37\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n"}) {
    HttpClient one = client();
    one.send(refused + get("/hello"));
    EXPECT_THAT(one.response().head, HasSubstr("Connection: close\r\n"));
    EXPECT_TRUE(one.is_closed()) << refused;
  }
}

HttpLimits few_bodies() {
  HttpLimits limits = small_limits();
  limits.bodies_bytes = 1500;
  return limits;
}

class FewBodiesHttpServerTest : public HttpServerTest {
 protected:
  FewBodiesHttpServerTest() : HttpServerTest(few_bodies()) {}
};

TEST_F(FewBodiesHttpServerTest, BoundsBodiesTogether) {
  HttpClient first = client();
  first.send(post("Content-Length: 1000\r\nExpect: 100-continue\r\n", ""));
  EXPECT_EQ(first.response().status, 100);  // the first body starts before the second request
  first.send(std::string(999, 'x'));
  const std::string whole = post("Content-Length: 900\r\n", std::string(900, 'x'));
  HttpResponse refused;
  EXPECT_TRUE(eventually([&] {  // the first body is still being sent
    HttpClient second = client();
    second.send(whole);
    refused = second.response();
    return refused.status == 503;
  }));
  EXPECT_THAT(refused.head, HasSubstr("\r\nRetry-After: 1\r\n"));
  first.send("x");
  EXPECT_EQ(first.response().status, 200);
  EXPECT_EQ(status_of(whole), 200) << "what was held has been given back";
}

}  // namespace
}  // namespace runnel
