#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/base/eventually.h"
#include "tests/server/allocation_limit.h"
#include "tests/server/http/http_server_fixture.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

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

// Uses up all file descriptors of the process until it is destroyed. give() frees some of them. The
// sanitizer for undefined behaviour needs a descriptor to check an object's type, so the asan
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
