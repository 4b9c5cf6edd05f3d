// An HTTP/1.1 server: it accepts connections, enforces their limits, parses requests and sends
// answers. The handlers of its routes decide what to answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/host/event_log.h"
#include "server/host/mishaps.h"
#include "server/http/answer_head.h"
#include "server/net/listener.h"

namespace runnel {

class HttpWorker;

// The value of the first header with a name, whose case does not matter; "" if there is none.
// "Host" is the host of the target if the target has one.
using HttpHeaderOf = std::function<std::string_view(std::string_view name)>;

// Valid until the handler returns.
struct HttpRequest {
  std::string_view method;  // routes of "GET" get "HEAD", too; the server then omits the body
  std::string_view target;  // as the client sent it, with its query
  std::string_view part;    // the part of the target that the star in the route's path matches
  std::string_view allow;   // the methods of the target, such as "GET, HEAD, POST"
  std::string_view body;    // "" if the route takes it in pieces
  std::string_view peer;    // network_of() the client
  HttpHeaderOf header;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type;
  std::string body;
};

// An error in OpenAI's form: {"error":{"message":...}}. `message` is printable ASCII.
HttpAnswer http_error(int status, std::string_view message);

// The next piece of a request's body. Empty: the body has ended. INVALID_ARGUMENT: it ends too
// early or is not HTTP. CANCELLED: the connection has ended. No piece follows an error.
using HttpPiece = Result<std::string_view>;

// Takes the answer to one request: either send(), or begin(), write() and end(). Calls never block.
// They may come from any thread, but, except for write() and abort(), only one at a time. They are
// ignored after the connection has ended. If the last copy is destroyed before the answer is
// complete, the client gets 500, or the stream is cut off.
class HttpReply {
 public:
  class Exchange;
  explicit HttpReply(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  // Adds a header to the answer. To be called before send() or begin().
  void set_header(std::string name, std::string value);

  // Sends the whole answer. The server keeps `kept` until the system has taken all of the answer,
  // or the connection has ended.
  void send(HttpAnswer answer, std::shared_ptr<const void> kept = nullptr);

  // Sends the head of an answer that follows in chunks. If nothing has been sent for
  // HttpLimits::heartbeat, `heartbeat` is sent as a chunk. "": there is no heartbeat.
  void begin(int status, std::string_view content_type, std::string_view heartbeat = "");
  // Sends the next chunk. `taken` is called once: with true when the system has taken all of the
  // chunk, or with false when the connection has ended. It is called on a thread of the server, or
  // within this function if the connection has already ended. It must not block. If this function
  // throws std::bad_alloc, `taken` is not called. Several threads may write at the same time; their
  // chunks are not mixed.
  void write(std::string_view chunk, std::function<void(bool)> taken = {});
  void end();

  // For a route that takes the body in pieces. `take` is called once with the next piece, on a
  // thread of the server or within this function. The piece is valid until `take` returns. `take`
  // must not block. There may be only one read at a time, and the caller must limit how long the
  // client may take. If the client expects "100 Continue", the first read sends it.
  void read(std::function<void(HttpPiece)> take);

  // Ends the connection at once. May be called at the same time as any other function.
  void abort();

  // The bytes written to this connection that the system has not taken yet. They grow while the
  // client reads too slowly, so the caller must limit them.
  int64_t waiting() const;

  // Calls `gone` once if the connection breaks before the answer is complete: on a thread of the
  // server, or within this function if the server has ended. `gone` must not block. To be called at
  // most once, before send() or begin(). A client that only stops sending is still connected. A
  // client that has closed its socket is noticed within a few seconds.
  void on_gone(std::function<void()> gone);

 private:
  std::shared_ptr<Exchange> exchange_;
};

// A request that was refused before a handler got it, and the reason.
struct HttpRefusal {
  int status = 0;
  std::string message;
  std::string_view peer = {};
};
using OnHttpRefusal = std::function<void(const HttpRefusal&)>;

// Functions that a server calls on its own threads. They must not block. Each may be empty.
struct HttpHooks {
  OnHttpRefusal on_refusal = nullptr;  // called for a request that no handler gets
  // The headers for every answer to a request with these headers, also for refusals.
  std::function<HttpHeaders(const HttpHeaderOf&)> headers_for = nullptr;
};

// Called on a thread of the server. It must not block.
using HttpHandler = std::function<void(const HttpRequest&, HttpReply)>;

// A route of "GET" serves HEAD, too. `path` is compared with the target up to its "?". A star in it
// matches one or more characters other than "/". The path "**" matches every target that no other
// route of its method matches.
struct HttpRoute {
  std::string method, path;
  HttpHandler handle;
  // The handler is called before the body has arrived, reads it by HttpReply::read() at its own
  // pace, and must limit its length. The connection ends with the answer.
  bool in_pieces = false;
};

struct HttpLimits {
  int threads = 1;
  ConnectionLimits connections;
  // The most connections that stay open after their last answer, so that their clients can receive
  // it. Each thread has an equal share, but at least one. Beyond its share it closes the oldest
  // one.
  int lingering = 8;
  int64_t header_bytes = 8 << 10;                     // of the request line and all headers
  int64_t body_bytes = 0;                             // of a body that is not taken in pieces
  const char* body_setting = "";                      // the name of body_bytes in messages
  int64_t bodies_bytes = INT64_MAX;                   // of all bodies that are being read
  Duration read_timeout = std::chrono::seconds(10);   // from a request's first byte to its last
  Duration idle_timeout = std::chrono::seconds(60);   // from one request to the next
  Duration write_timeout = std::chrono::seconds(30);  // without progress of an answer
  // Once the end of an answer has been written, the client must take the rest within write_timeout
  // plus one second for each `slowest_bytes` of it.
  int64_t slowest_bytes = 64 << 10;
  Duration heartbeat = std::chrono::seconds(15);  // HttpReply::begin()
};

// The memory that all connections may take, excluding the handlers' answers.
int64_t http_bytes(const HttpLimits& limits);

class HttpServer {
 public:
  // `log` and `clock` must outlive the server and its replies.
  HttpServer(HttpLimits limits, std::vector<HttpRoute> routes, const EventLog& log,
             HttpHooks hooks = {}, const Clock& clock = real_clock());
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // Calls stop().
  ~HttpServer();

  // Starts to serve. FAILED_PRECONDITION if the system has no descriptors for it.
  Status start(ListenSockets sockets);
  // Closes all connections, and returns when no handler runs. Replies may outlive the server.
  void stop();

  const std::string& address() const { return listener_->address(); }

 private:
  void take(int socket);

  const HttpLimits limits_;
  const std::vector<HttpRoute> routes_;
  const EventLog& log_;
  const HttpHooks hooks_;
  const Clock& clock_;
  Mishaps mishaps_{log_, clock_};
  std::atomic<int64_t> bodies_{0};  // bytes of the bodies that are being read
  std::vector<std::shared_ptr<HttpWorker>> workers_;
  std::vector<std::thread> threads_;
  size_t next_ = 0;  // the worker that the next connection goes to
  std::unique_ptr<Listener> listener_;
};

}  // namespace runnel
