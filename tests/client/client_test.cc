// How a client reaches a server, and its errors if it cannot.
#include "client/client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "client/handshake.h"
#include "client/silence.h"

namespace runnel {
namespace {

using testing::HasSubstr;

// A port of this machine that accepts connections and sends `greeting` on each.
class Listener {
 public:
  explicit Listener(std::string greeting) : greeting_(std::move(greeting)) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &size), 0);
    EXPECT_EQ(listen(socket_, 16), 0);
    port_ = ntohs(name.sin_port);
    if (!greeting_.empty()) thread_ = std::thread([this] { greet(); });
  }
  ~Listener() {
    shutdown(socket_, SHUT_RDWR);  // ends accept()
    if (thread_.joinable()) thread_.join();
    close(socket_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void greet() {
    for (int peer = 0; (peer = accept(socket_, nullptr, nullptr)) >= 0; close(peer)) {
      EXPECT_GT(send(peer, greeting_.data(), greeting_.size(), MSG_NOSIGNAL), 0);
      shutdown(peer, SHUT_WR);
    }
  }

  const std::string greeting_;
  int socket_ = -1, port_ = 0;
  std::thread thread_;
};

TEST(Connecting, NamesTheAddressIfNoServerListens) {
  Client client({.address = "127.0.0.1:1"}, Seconds(60));
  const Status status = client.connect(Seconds(60));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("no server answers at 127.0.0.1:1; start one with"));
}

TEST(Connecting, NamesAServerThatDoesNotAnswer) {
  const Listener silent("");  // the kernel accepts connections for it, as for a stopped process
  Client client({.address = silent.address()}, Seconds(0.2));
  const Status status = client.connect(Seconds(10));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("accepts connections, but has not answered within "
                                          "0.2 s; see whether its process is stopped"));
}

TEST(Connecting, NamesAServerOfAnotherProtocol) {
  const Listener other("SSH-2.0-OpenSSH_9.2\r\n");
  Client client({.address = other.address()}, Seconds(60));
  const Status status = client.connect(Seconds(60));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("something listens at " + other.address() +
                                          ", but it does not speak gRPC; is that"));
}

TEST(Connecting, NamesAHostThatIsNotKnown) {
  const Status status = explain_silence({.address = "no-such-host.invalid:1"}, true, Seconds(1),
                                        std::chrono::milliseconds(100), [] { return false; });
  EXPECT_THAT(status.message(), HasSubstr("the host 'no-such-host.invalid' cannot be found"));
}

constexpr std::chrono::milliseconds kLong{60'000};

// A port of this machine whose queue of connections is full, so that further ones get no answer.
class FullListener {
 public:
  FullListener() {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    for (int& one : sockets_) one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_EQ(bind(sockets_[0], reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(getsockname(sockets_[0], reinterpret_cast<sockaddr*>(&name), &size), 0);
    EXPECT_EQ(listen(sockets_[0], 0), 0);
    for (size_t i = 1; i < sockets_.size(); ++i) {
      connect(sockets_[i], reinterpret_cast<sockaddr*>(&name), size);
    }
    port_ = ntohs(name.sin_port);
  }
  ~FullListener() {
    for (const int one : sockets_) close(one);
  }
  FullListener(const FullListener&) = delete;
  FullListener& operator=(const FullListener&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  std::array<int, 4> sockets_{};
  int port_ = 0;
};

TEST(Connecting, AnInterruptEndsTheSearchForTheReason) {
  const FullListener full;
  int asked = 0;
  const Status status = explain_silence({.address = full.address()}, false, Seconds(1), kLong,
                                        [&] { return ++asked > 1; });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_GT(asked, 1) << "also while it waits for an address";
}

TEST(Connecting, NamesAnAddressWithoutAnAnswer) {
  const FullListener full;
  const Status status = explain_silence({.address = full.address()}, false, Seconds(1),
                                        std::chrono::milliseconds(20), [] { return false; });
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("no connection to " + full.address() + " within 1 s"));
}

TEST(Connecting, APeerThatSendsAByteNowAndThenDoesNotHoldAHandshake) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  constexpr int kRecord = 16 << 10;  // bytes
  std::atomic<int> sent{0};
  std::thread peer([&] {
    std::string bytes("\x16\x03\x03\x40\x00", 5);  // the head of the record
    while (send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
      bytes = "\x02";
      ++sent;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  EXPECT_FALSE(speaks_tls(ends[0], std::chrono::milliseconds(100)));
  EXPECT_LT(sent.load(), kRecord) << "the handshake ends before the record does";
  close(ends[0]);
  peer.join();
  close(ends[1]);
}

TEST(Connecting, APeerThatHasClosedDoesNotEndTheProcess) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  close(ends[1]);  // from here on, a write raises SIGPIPE
  EXPECT_FALSE(speaks_tls(ends[0], kLong));
  const Status status =
      explain_handshake(ends[0], {.address = "here:1", .tls = true, .name = "here"}, kLong);
  EXPECT_THAT(status.message(), HasSubstr("no call reaches here:1: the TLS handshake failed"));
  close(ends[0]);
}

TEST(CallErrors, SayWhatToDo) {
  EXPECT_EQ(call_error({Code::kUnauthenticated, "the key is unknown"}),
            "UNAUTHENTICATED: the key is unknown; give a key with --api-key-file FILE");
  EXPECT_EQ(call_error({Code::kDeadlineExceeded, "Deadline Exceeded"}),
            "DEADLINE_EXCEEDED: Deadline Exceeded; give it more time with --timeout");
  EXPECT_THAT(call_error({Code::kResourceExhausted, "Received message larger than max (9 vs. 4)"}),
              HasSubstr("the second number is the server's limits.message_bytes"));
}

TEST(Connecting, RefusesAnAddressOfAWrongForm) {
  Client client({.address = "http://127.0.0.1:50051"}, Seconds(1));
  const Status status = client.connect(Seconds(1));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("leave out 'http://'"));
}

TEST(PieceOf, APieceEndsAfterALineOrBeforeASpaceOrACharacter) {
  EXPECT_EQ(piece_of("one two", 7), "one two");
  EXPECT_EQ(piece_of("one tw\nthree", 10), "one tw\n");
  EXPECT_EQ(piece_of("three two", 8), "three");
  EXPECT_EQ(piece_of("\u00fc\u00fc\u00fc", 5), "\u00fc\u00fc");
}

}  // namespace
}  // namespace runnel
