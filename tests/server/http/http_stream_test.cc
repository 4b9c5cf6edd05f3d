#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/eventually.h"
#include "tests/server/http/http_server_fixture.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Counts how many chunks were sent and how many were lost.
struct Told {
  std::atomic<int> taken = 0, lost = 0;
  std::function<void(bool)> teller() {
    return [this](bool ok) { ++(ok ? taken : lost); };
  }
  bool becomes(int taken_now, int lost_now) {
    return eventually([&] { return taken == taken_now && lost == lost_now; });
  }
};

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

}  // namespace
}  // namespace runnel
