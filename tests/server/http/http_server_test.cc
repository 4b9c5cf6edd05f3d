#include "server/http/http_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/base/eventually.h"
#include "tests/server/allocation_limit.h"
#include "tests/server/http/http_client.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kPatience = std::chrono::seconds(20);

std::string get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

std::string post(const std::string& headers, const std::string& body) {
  return "POST /echo HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}

HttpLimits small_limits() {
  HttpLimits limits;
  limits.threads = 2;
  limits.connections = {.in_all = 32, .per_peer = 16, .name = "the limit"};
  limits.header_bytes = 1024;
  limits.body_bytes = 1000;
  return limits;
}

// Passes replies from handlers to the test.
class Handed {
 public:
  void put(HttpReply reply) {
    std::lock_guard lock(mutex_);
    reply_ = std::move(reply);
    changed_.notify_all();
  }
  HttpReply take() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return reply_.has_value(); }));
    if (!reply_) throw std::runtime_error("no request came");
    return *std::exchange(reply_, std::nullopt);
  }
  bool has_one() {
    std::lock_guard lock(mutex_);
    return reply_.has_value();
  }
  void tell_gone() {
    std::lock_guard lock(mutex_);
    ++gone_;
    changed_.notify_all();
  }
  bool is_gone(int count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return gone_ == count; });
  }
  int gone() {
    std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<HttpReply> reply_;
  int gone_ = 0;
};

// A handler that answers with this text.
HttpHandler answer(std::string text) {
  return [text = std::move(text)](const HttpRequest&, HttpReply reply) {
    reply.send({200, "text/plain", text});
  };
}

class HttpServerTest : public ::testing::Test {
 protected:
  explicit HttpServerTest(HttpLimits limits = small_limits()) : server(limits, routes(), log) {
    EXPECT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  }

  std::vector<HttpRoute> routes() {
    return {
        {"GET", "/hello", answer("hello")},
        {"POST", "/echo",
         [](const HttpRequest& request, HttpReply reply) {
           reply.send({200, "text/plain",
                       std::string(request.method) + " " + std::string(request.target) + " " +
                           std::string(request.peer) + " [" + std::string(request.header("x-a")) +
                           "] [" + std::string(request.body) + "]"});
         }},
        {"GET", "/later",
         [this](const HttpRequest&, HttpReply reply) {
           reply.on_gone([this] { handed.tell_gone(); });
           handed.put(std::move(reply));
         }},
        {"GET", "/of/*/part",
         [](const HttpRequest& request, HttpReply reply) {
           reply.set_header("X-Part", std::string(request.part));
           reply.send({200, "text/plain", "part"});
         }},
        {"GET", "/dropped", [](const HttpRequest&, const HttpReply&) {}},
        {"GET", "/echo", answer("got")},
        {"PUT", "/pieces",
         [this](const HttpRequest&, HttpReply reply) { handed.put(std::move(reply)); }, true},
    };
  }

  HttpClient client() const { return HttpClient(server.address()); }

  // The status of the answer to these bytes, sent on a new connection.
  int status_of(const std::string& bytes) const {
    HttpClient one = client();
    one.send(bytes);
    return one.response().status;
  }

  std::ostringstream text;
  EventLog log{"info", false, text};
  Handed handed;
  HttpServer server;
};

// The next piece of a body, or "!" and the reason why there is none.
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

// All pieces of a body, or "!" and the reason why one is missing.
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

TEST_F(HttpServerTest, AnswersARequest) {
  HttpClient one = client();
  one.send(get("/hello?name=value"));
  const HttpResponse answer = one.response();
  EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
  EXPECT_THAT(answer.head, HasSubstr(" GMT\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"));
  EXPECT_EQ(answer.body, "hello");
}

TEST_F(HttpServerTest, DetectsThatAClientWithUnreadBytesHasGone) {
  for (const bool resets : {true, false}) {
    HttpClient one = client();
    std::string more = get("/later");
    for (int i = 0; i < 1000; ++i) more += get("/hello");
    one.send(more);
    const HttpReply reply = handed.take();
    // While the server has unread bytes, it sees the client's close, but cannot read up to it.
    if (!resets) one.end_sending();
    one.reset();
    EXPECT_TRUE(handed.is_gone(resets ? 1 : 2));
  }
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
        "3\r\nabcd\r\n" + std::string("0\r\n\r\n"), "0\r\n" + std::string(9000, 'x')}) {
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

TEST_F(HttpServerTest, TakesBodiesByLengthAndInChunks) {
  HttpClient one = client();
  one.send(post("Content-Length: 0\r\n", ""));
  EXPECT_THAT(one.response().body, HasSubstr(" []"));
  one.send(post("", ""));
  EXPECT_THAT(one.response().body, HasSubstr(" []"));
  one.send(
      post("Transfer-Encoding: Chunked\r\n", "3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"));
  EXPECT_THAT(one.response().body, HasSubstr(" [abcde]"));
  one.send(post("Content-Length: 1000\r\n", std::string(1000, 'z')));
  EXPECT_THAT(one.response().body, HasSubstr(std::string(1000, 'z')));
  one.send(post("Content-Length: 2\r\nExpect: 100-continue\r\n", ""));
  EXPECT_EQ(one.response().status, 100);
  one.send("ok");
  EXPECT_THAT(one.response().body, HasSubstr(" [ok]"));
  // HTTP/1.0 has no interim answers.
  one.send("POST /echo HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok");
  EXPECT_THAT(one.response().body, HasSubstr(" [ok]"));
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

TEST_F(HttpServerTest, StreamsChunks) {
  HttpClient one = client();
  one.send(get("/later"));
  HttpReply reply = handed.take();
  reply.begin(200, "text/event-stream");
  reply.write("data: 1\n\n");
  EXPECT_THAT(one.response(false).head,
              HasSubstr("Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_EQ(one.read(14), "9\r\ndata: 1\n\n\r\n") << "before the next is there";
  reply.write("");
  reply.write("data: 2\n\n");
  reply.end();
  EXPECT_EQ(one.read(19), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  one.send(get("/hello"));
  EXPECT_EQ(one.response().body, "hello");
  EXPECT_EQ(handed.gone(), 0);
}

TEST_F(HttpServerTest, StreamsToOldClientsAndForHead) {
  HttpClient old = client();
  old.send("GET /later HTTP/1.0\r\n\r\n");
  HttpReply first = handed.take();
  HttpClient head = client();
  head.send("HEAD /later HTTP/1.1\r\nHost: a\r\n\r\n");
  HttpReply second = handed.take();
  for (HttpReply reply : {first, second}) {
    reply.begin(200, "text/plain");
    reply.write("one");
    reply.write("two");
    reply.end();
  }
  EXPECT_THAT(old.response(false).head, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_EQ(old.read_all(), "onetwo");
  EXPECT_THAT(head.response(false).head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  head.send(get("/hello"));
  EXPECT_EQ(head.response().body, "hello");
}

TEST_F(HttpServerTest, AStreamIsToldThatItsClientHasGone) {
  int gone = 0;
  for (const bool ends_sending : {true, false}) {
    HttpClient one = client();
    one.send(get("/later"));
    HttpReply reply = handed.take();
    reply.begin(200, "text/plain");
    EXPECT_EQ(one.response(false).status, 200);
    EXPECT_EQ(handed.gone(), gone);
    if (ends_sending) one.end_sending();
    one.reset();
    EXPECT_TRUE(handed.is_gone(++gone));
    reply.write("nobody reads this");
    reply.end();
  }
  HttpClient one = client();
  one.send(get("/hello"));
  EXPECT_EQ(one.response().status, 200);
}

TEST_F(HttpServerTest, ReportsTheBytesThatASlowClientHasNotRead) {
  HttpClient one = client();
  one.send(get("/later"));
  HttpReply reply = handed.take();
  reply.begin(200, "text/plain");
  const std::string chunk(1 << 20, 'x');
  for (int i = 0; i < 32; ++i) reply.write(chunk);
  EXPECT_GE(reply.waiting(), 8 << 20);
  reply.end();
  const HttpResponse answer = one.response();
  EXPECT_EQ(answer.body.size(), 32U << 20);
  // The client may have the last bytes before the server counts them.
  EXPECT_TRUE(eventually([&] { return reply.waiting() == 0; }));
}

TEST_F(HttpServerTest, ServesManyStreamsWrittenByAnotherThread) {
  std::vector<HttpClient> clients;
  std::vector<HttpReply> replies;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(client());
    clients.back().send(get("/later"));
    replies.push_back(handed.take());
  }
  std::thread engine([&] {
    for (HttpReply& reply : replies) reply.begin(200, "text/plain");
    for (int i = 0; i < 1000; ++i) {
      for (HttpReply& reply : replies) reply.write(std::to_string(i) + "\n");
    }
    for (HttpReply& reply : replies) reply.end();
  });
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += std::to_string(i) + "\n";
  for (HttpClient& one : clients) EXPECT_EQ(one.response().body, expected);
  engine.join();
}

TEST_F(HttpServerTest, BoundsConnectionsPerPeerAndInTotal) {
  std::vector<HttpClient> held;
  for (int i = 0; i < 16; ++i) {
    held.emplace_back(server.address());
    held.back().send(get("/hello"));
    ASSERT_EQ(held.back().response().status, 200) << i;
  }
  EXPECT_TRUE(client().is_closed());
  for (int i = 0; i < 16; ++i) {
    held.emplace_back(server.address(), "127.0.0.2");
    held.back().send(get("/hello"));
    ASSERT_EQ(held.back().response().status, 200) << i;
  }
  EXPECT_TRUE(HttpClient(server.address(), "127.0.0.3").is_closed());
  EXPECT_THAT(text.str(), HasSubstr("the limit is reached by one address"));
  held.clear();
  EXPECT_TRUE(eventually([&] { return status_of(get("/hello")) == 200; })) << "there is room again";
}

TEST_F(HttpServerTest, BoundsConnectionsThatWaitForTheirClientsToClose) {
  std::vector<HttpClient> held;  // more connections than one address may have
  for (int i = 0; i < 48; ++i) {
    held.emplace_back(server.address());
    held.back().send(post("Content-Length: 5000\r\n", ""));
    ASSERT_EQ(held.back().response().status, 413) << i;
  }
  EXPECT_EQ(status_of(get("/hello")), 200);
  EXPECT_TRUE(held.front().is_closed()) << "the oldest goes first";
}

TEST_F(HttpServerTest, StopsWithOpenConnectionsAndPendingReplies) {
  HttpClient idle = client();
  HttpClient reading = client();
  reading.send("GET /hel");
  HttpClient waiting = client();
  waiting.send(get("/later"));
  HttpReply reply = handed.take();
  server.stop();
  EXPECT_EQ(handed.gone(), 1);
  EXPECT_TRUE(idle.is_closed());
  EXPECT_TRUE(reading.is_closed());
  EXPECT_TRUE(waiting.is_closed());
  reply.send({200, "text/plain", "too late"});
}

TEST_F(HttpServerTest, AConnectionEndsIfMemoryRunsOut) {
  int ended = 0;
  for (size_t most = 0; most < 4096; most = most * 3 / 2 + 8) {
    HttpClient one = client();
    one.send(get("/hello"));
    ASSERT_EQ(one.response().status, 200);
    {
      const AllocationLimit limit(most);
      one.send(post("Content-Length: 900\r\n", std::string(900, 'x')));
      const HttpResponse answer = one.response();
      EXPECT_TRUE(answer.status == 200 || one.is_closed()) << answer.status;
      ended += answer.status == 0;
    }
    EXPECT_EQ(status_of(get("/hello")), 200) << most;
  }
  EXPECT_GT(ended, 0);
}

TEST_F(HttpServerTest, AStarInARouteMatchesOnePartOfThePath) {
  HttpClient one = client();
  one.send(get("/of/a%20b/part?c"));
  EXPECT_THAT(one.response().head, HasSubstr("\r\nX-Part: a%20b\r\n"));
  for (const char* const path : {"/of//part", "/of/part", "/of/a/b/part", "/of/a/part/", "/of/a"}) {
    EXPECT_EQ(status_of(get(path)), 404) << path;
  }
}

// Counts the results that a chunk's writer is told.
struct Told {
  std::atomic<int> taken = 0, lost = 0;
  std::function<void(bool)> teller() {
    return [this](bool ok) { ++(ok ? taken : lost); };
  }
  bool becomes(int taken_now, int lost_now) {
    return eventually([&] { return taken == taken_now && lost == lost_now; });
  }
};

TEST_F(HttpServerTest, ReportsWhenTheSystemHasTakenAChunk) {
  Told told;
  HttpClient one = client();
  one.send(get("/later"));
  HttpReply reply = handed.take();
  reply.begin(200, "text/plain");
  reply.write("first", told.teller());
  EXPECT_TRUE(told.becomes(1, 0));
  reply.write("", told.teller());
  EXPECT_TRUE(told.becomes(2, 0));
  reply.write(std::string(64 << 20, 'x'), told.teller());
  one.reset();
  EXPECT_TRUE(told.becomes(2, 1));
  reply.write("more", told.teller());
  EXPECT_TRUE(told.becomes(2, 2)) << "also where the connection has ended before";
  server.stop();
  reply.write("more", told.teller());
  EXPECT_TRUE(told.becomes(2, 3)) << "and the server";
}

TEST_F(HttpServerTest, KeepsTheMemoryOfAnAnswerUntilItIsSent) {
  for (const bool reads : {true, false}) {
    HttpClient one = client();
    one.send(get("/later"));
    auto kept = std::make_shared<const int>(0);
    const std::weak_ptr<const int> watched = kept;
    handed.take().send({200, "text/plain", std::string(64 << 20, 'x')}, std::move(kept));
    EXPECT_TRUE(one.has_answer(20000));
    EXPECT_FALSE(watched.expired()) << "no buffer holds all";
    if (reads) {
      EXPECT_EQ(one.response().body.size(), 64U << 20);
    } else {
      one.reset();
    }
    EXPECT_TRUE(eventually([&] {
      EXPECT_EQ(status_of(get("/hello")), 200);
      return watched.expired();
    })) << reads;
  }
}

TEST_F(HttpServerTest, EndsAConnectionWhoseReplyIsAborted) {
  Told told;
  HttpClient one = client();
  one.send(get("/later"));
  HttpReply reply = handed.take();
  reply.begin(200, "text/plain");
  reply.write(std::string(64 << 20, 'x'), told.teller());
  reply.abort();
  EXPECT_TRUE(told.becomes(0, 1));
  EXPECT_TRUE(handed.is_gone());
  EXPECT_LT(one.read_all().size(), 64U << 20);
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

// For clients that have begun a request. Before that, the usual times apply.
HttpLimits strict_limits() {
  HttpLimits limits = small_limits();
  limits.read_timeout = milliseconds(400);
  limits.write_timeout = milliseconds(400);
  return limits;
}

class StrictHttpServerTest : public HttpServerTest {
 protected:
  StrictHttpServerTest() : HttpServerTest(strict_limits()) {}
};

HttpLimits impatient_limits() {
  HttpLimits limits = strict_limits();
  limits.idle_timeout = milliseconds(400);
  limits.heartbeat = milliseconds(20);
  return limits;
}

class ImpatientHttpServerTest : public HttpServerTest {
 protected:
  ImpatientHttpServerTest() : HttpServerTest(impatient_limits()) {}

  // Asks for /later and returns the reply. Tries a new connection if the server closed one that was
  // idle too long before the request came.
  HttpReply ask_later(HttpClient& one) {
    EXPECT_TRUE(eventually([&] {
      one = client();
      one.send(get("/later"));
      EXPECT_TRUE(eventually([&] { return handed.has_one() || one.has_answer(0); }));
      return handed.has_one();
    }));
    return handed.take();
  }
};

TEST_F(StrictHttpServerTest, ClosesConnectionsWhoseRequestsTakeTooLong) {
  HttpClient head = client();
  head.send("GET /hello HTTP/1.1\r\n");
  EXPECT_EQ(head.response().status, 408);
  EXPECT_TRUE(head.is_closed());
  HttpClient body = client();
  body.send(post("Content-Length: 10\r\n", "12345"));
  EXPECT_EQ(body.response().status, 408);
}

TEST_F(ImpatientHttpServerTest, ClosesIdleConnectionsWithoutAnAnswer) {
  EXPECT_TRUE(client().is_closed());
}

TEST_F(StrictHttpServerTest, ClosesConnectionsWhoseClientsDoNotRead) {
  HttpClient one = client();
  one.send(get("/later"));
  auto kept = std::make_shared<const int>(0);
  const std::weak_ptr<const int> watched = kept;
  handed.take().send({200, "text/plain", std::string(64 << 20, 'x')}, std::move(kept));
  EXPECT_TRUE(eventually([&] { return watched.expired(); })) << "of the whole answer";
  EXPECT_LT(one.read_all().size(), 64U << 20);
  HttpClient stream = client();
  stream.send(get("/later"));
  HttpReply reply = handed.take();
  reply.begin(200, "text/plain");
  EXPECT_EQ(stream.response(false).status, 200);
  reply.write(std::string(64 << 20, 'x'));
  EXPECT_TRUE(handed.is_gone()) << "of the stream";
}

TEST_F(ImpatientHttpServerTest, AnIdleStreamGetsHeartbeats) {
  HttpClient one = client();
  HttpReply reply = ask_later(one);
  reply.begin(200, "text/plain", ": ping\n");
  one.response(false);
  EXPECT_EQ(one.read(24), "7\r\n: ping\n\r\n7\r\n: ping\n\r\n");
  reply.end();
}

// While it exists, the process can open no files except those that give() allows. The sanitizer for
// undefined behaviour opens a pipe to check an object's type, and fails without one, so the asan
// preset skips tests with "Descriptor" in their names.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {.rlim_cur = 256, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (;;) {
      Descriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one.is_open()) break;
      taken_.push_back(std::move(one));
    }
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  void give(size_t count) { taken_.resize(taken_.size() - count); }

 private:
  rlimit before_{};
  std::vector<Descriptor> taken_;
};

TEST_F(HttpServerTest, ItsFirstConnectionMayHaveTheLastDescriptors) {
  NoDescriptors none;
  none.give(3);  // for the client, the server and the listener
  HttpClient one = client();
  one.send(get("/hello"));
  EXPECT_EQ(one.response().body, "hello");
}

TEST_F(HttpServerTest, WithoutADescriptorNewConnectionsWaitAndOthersContinue) {
  HttpClient one = client();
  one.send(get("/hello"));
  EXPECT_EQ(one.response().body, "hello");
  NoDescriptors none;
  none.give(1);
  HttpClient two = client();
  two.send(get("/hello"));
  EXPECT_FALSE(two.has_answer(200));
  one.send(get("/hello"));
  EXPECT_EQ(one.response().body, "hello");
  none.give(2);
  EXPECT_EQ(two.response().body, "hello");
}

TEST(HttpServer, SaysAtItsStartThatThereIsNoDescriptor) {
  std::ostringstream text;
  const EventLog log{"info", false, text};
  HttpServer server(small_limits(), {}, log);
  ListenSockets sockets = listen_on("127.0.0.1:0").value();
  const NoDescriptors none;
  const Status status = server.start(std::move(sockets));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("Too many open files"));
}

}  // namespace
}  // namespace runnel
