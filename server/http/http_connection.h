// One connection of the HTTP server, and the thread that it lives on.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/http/answer_head.h"
#include "server/http/connection_rules.h"
#include "server/http/head_rules.h"
#include "server/http/http_server.h"
#include "server/http/told.h"

namespace runnel {

// A socket that the listener has accepted. The destructor shuts the connection down, unless an
// HttpConnection has taken the socket over. Closing is not enough, because the listener has its own
// descriptor.
struct AcceptedSocket {
  explicit AcceptedSocket(int fd) : socket(fd) {}
  AcceptedSocket(AcceptedSocket&&) = default;
  AcceptedSocket& operator=(AcceptedSocket&&) = delete;
  ~AcceptedSocket();

  Descriptor socket;
};

// The socket, the parser and the timers of a connection, which stays on one thread. ConnectionRules
// decides what it does next. Requests that come while it answers wait in `pending_`.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpWorker& worker, AcceptedSocket accepted, const HttpLimits& limits,
                 const std::vector<HttpRoute>& routes, std::atomic<int64_t>& bodies,
                 const HttpHooks& hooks, const Clock& clock);

  void start();
  void close();

  // Sends `pieces` of the current answer, which HttpReply::waiting() already counts.
  void deliver(std::vector<Piece> pieces, bool last);
  // Sets the bytes that the current answer sends if nothing else is sent for some time.
  void set_heartbeat(std::string bytes) {
    heartbeat_ = std::move(bytes);
    rules_.set_heartbeat();
  }
  void on_gone(Taken gone) { on_gone_ = std::move(gone); }
  // Passes the next piece of the current request's body to `take` when it has arrived.
  void read_body(BodyTaker take);

  // Runs a task of this connection. Closes the connection if the task throws, because there is no
  // memory or no descriptor.
  template <typename Task>
  void run(Task task) {
    if (rules_.phase() == Phase::kClosed) return;
    try {
      task();
      set_timer();
    } catch (const std::exception&) {
      close();
    }
  }

 private:
  using Phase = ConnectionRules::Phase;
  using Next = ConnectionRules::Next;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using PieceParser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

  // A completion handler, which keeps the connection.
  template <typename Method>
  auto bound(Method method) {
    return [self = shared_from_this(), method](boost::system::error_code error, size_t bytes = 0) {
      self->run([&] { ((*self).*method)(error, bytes); });
    };
  }

  void act(Next next);
  void read() { act(rules_.read(pending_.size())); }
  void wait_for_bytes();
  void on_readable(boost::system::error_code error, size_t);
  void watch();
  void on_watch(boost::system::error_code, size_t);
  void parse();
  void skip_empty_lines();
  void lower_minor_version();
  bool parse_some();
  void next_request();
  bool count_body();
  void forget_request();
  void refuse_bad_head();
  RequestHead head() const;
  bool bound_body();
  void handle();
  void pass_piece();
  void refuse(HttpRefusal refusal, const HttpHeaders& headers = {});
  int64_t enqueue(std::string bytes);
  void send(std::string bytes);
  void write();
  void on_write(boost::system::error_code error, size_t bytes);
  void finish();
  void linger();
  void set_timer();
  void on_deadline(boost::system::error_code, size_t);
  void tell_gone();

  HttpWorker& worker_;
  const HttpLimits& limits_;
  const std::vector<HttpRoute>& routes_;
  std::atomic<int64_t>& bodies_;  // bytes of bodies that are being read, on all connections
  const HttpHooks& hooks_;
  const Clock& clock_;
  boost::asio::generic::stream_protocol::socket socket_;
  ConnectionRules rules_;
  boost::asio::steady_timer timer_;        // of the rules' deadline
  TimePoint timer_at_ = TimePoint::max();  // when timer_ expires
  boost::asio::steady_timer watch_;        // to look for a reset while nothing is read
  std::string peer_;
  std::string pending_;  // bytes that were read and are not parsed yet

  std::optional<Parser> parser_;                 // of the request that is being read
  boost::beast::http::request_header<> fields_;  // the head of that request, without the trailer
  size_t head_bytes_ = 0;                        // parsed bytes of the head
  int64_t body_bytes_ = 0;                       // bytes of the body that are counted in bodies_
  const HttpRoute* route_ = nullptr;
  std::string allow_;  // the methods of the request's path
  AnswerForm form_;
  Taken on_gone_;                        // called if the client leaves before the answer's end
  std::unique_ptr<PieceParser> pieces_;  // of a body that is taken in pieces
  BodyTaker take_;                       // gets the next piece

  std::string heartbeat_;
  std::deque<Piece> outgoing_;
  size_t written_ = 0;  // bytes of the first piece that have been written
  const std::shared_ptr<std::atomic<int64_t>> waiting_ = std::make_shared<std::atomic<int64_t>>(0);
};

// One thread's event loop and connections.
class HttpWorker : public std::enable_shared_from_this<HttpWorker> {
 public:
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stays{
      context.get_executor()};
  // Asio opens the epoll, event and timer descriptors of a worker with its first timer. This timer
  // makes Asio open them here, where start() can report a failure, and not at the first connection.
  boost::asio::steady_timer opens_descriptors{context};
  std::set<std::shared_ptr<HttpConnection>> connections;
  std::vector<HttpConnection*> lingering;  // connections that linger, oldest first
  // Buffers for reading, and for a piece of a body. Connections share them.
  std::array<char, kHttpReadBytes> incoming{}, piece{};
};

// A reply to a connection of the worker. The worker or the connection may have ended.
HttpReply make_reply(std::weak_ptr<HttpWorker> worker, std::weak_ptr<HttpConnection> connection,
                     const AnswerForm& form, std::shared_ptr<std::atomic<int64_t>> waiting);

}  // namespace runnel
