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

// The value of the first header of a name, in whatever case; "" where there is none. That of "Host"
// is the host of the target where the target has one.
using HttpHeaderOf = std::function<std::string_view(std::string_view name)>;

// Valid until the handler returns.
struct HttpRequest {
  std::string_view method;  // routes of "GET" see "HEAD" as well; the server leaves the body out
  std::string_view target;  // as the client sent it, with its query
  std::string_view part;    // of the target, in the place of the star in the route's path
  std::string_view allow;   // the methods that the target takes, "GET, HEAD, POST"
  std::string_view body;    // "" where the route takes it in pieces
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

// The next piece of a request's body; empty: the body has ended. INVALID_ARGUMENT where it ends too
// early or is not HTTP, CANCELLED where the connection has ended: no more comes.
using HttpPiece = Result<std::string_view>;

// Takes the answer to one request: either send(), or begin(), write() and end(). Calls never block,
// may come from any thread, one at a time, and are ignored once the client has gone. When the last
// copy is destroyed before the answer is complete, the client gets 500, or the stream is cut off.
class HttpReply {
 public:
  class Exchange;
  explicit HttpReply(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  // Adds a header to the answer; before send() or begin().
  void set_header(std::string name, std::string value);

  // The whole answer. `kept` is kept until the system has taken all of it or the connection has
  // ended.
  void send(HttpAnswer answer, std::shared_ptr<const void> kept = nullptr);

  // The head of an answer that comes in chunks. Where nothing else has gone out for
  // HttpLimits::heartbeat, `heartbeat` is sent as a chunk of its own; "": nothing is.
  void begin(int status, std::string_view content_type, std::string_view heartbeat = "");
  // The next chunk. `taken` is called once: when the system has taken all of the chunk (true), or
  // when the connection has ended (false). It comes from a thread of the server, or from within
  // this function where the connection has ended already; not at all where this throws
  // std::bad_alloc. It must not block. Several threads may write at once, each chunk whole.
  void write(std::string_view chunk, std::function<void(bool)> taken = {});
  void end();

  // Of a route that takes the body in pieces: `take` is called once, on a thread of the server or
  // from within this function, with the next piece, which is valid until it returns. It must not
  // block. One at a time; how long the client may take is for the caller to bound. A client that
  // waits to be told is told to send the body by the first of these, and not by an answer.
  void read(std::function<void(HttpPiece)> take);

  // Ends the connection, whatever is under way; beside any other call.
  void abort();

  // Bytes written to this connection that the system has not taken yet. They grow while the client
  // reads too slowly; the caller bounds them.
  int64_t waiting() const;

  // Calls `gone` once if the connection breaks before the answer is complete: on a thread of the
  // server, or from within this function where the server has ended. `gone` must not block. At most
  // once, before send() or begin(). A client that only sends no more has not gone; one that has
  // closed its socket is found within a few seconds.
  void on_gone(std::function<void()> gone);

 private:
  std::shared_ptr<Exchange> exchange_;
};

// A request that no handler has taken, and why.
struct HttpRefusal {
  int status = 0;
  std::string message;
  std::string_view peer = {};
};
using OnHttpRefusal = std::function<void(const HttpRefusal&)>;

// Functions that a server calls for each request, on a thread of its own. Neither may block, and
// both may be empty.
struct HttpHooks {
  OnHttpRefusal on_refusal = nullptr;  // a request that comes to no handler
  // Headers for every answer to a request with these headers, refusals included.
  std::function<HttpHeaders(const HttpHeaderOf&)> headers_for = nullptr;
};

// Called on a thread of the server: must not block.
using HttpHandler = std::function<void(const HttpRequest&, HttpReply)>;

// A route of "GET" serves HEAD as well. `path` is compared with the target up to its "?"; a star in
// it stands for one or more characters other than "/", and the path "**" for every target that no
// other route of its method has.
struct HttpRoute {
  std::string method, path;
  HttpHandler handle;
  // The handler is called before the body is there, takes it by HttpReply::read() at its own pace,
  // and bounds its length. The connection ends with the answer.
  bool in_pieces = false;
};

struct HttpLimits {
  int threads = 1;
  ConnectionLimits connections;
  // Connections that stay open after their last answer so that their clients can take it. Each
  // thread has an even share of at least one; beyond it the oldest is closed.
  int lingering = 8;
  int64_t header_bytes = 8 << 10;                     // of the request line and all headers
  int64_t body_bytes = 0;                             // where it is not taken in pieces
  const char* body_setting = "";                      // the name of body_bytes for people
  int64_t bodies_bytes = INT64_MAX;                   // of all requests that are being read
  Duration read_timeout = std::chrono::seconds(10);   // from a request's first byte to its last
  Duration idle_timeout = std::chrono::seconds(60);   // from one request to the next
  Duration write_timeout = std::chrono::seconds(30);  // without progress of an answer
  // A client must take what is left of an answer, once its end is there, within write_timeout and a
  // second for so many bytes.
  int64_t slowest_bytes = 64 << 10;
  Duration heartbeat = std::chrono::seconds(15);  // HttpReply::begin()
};

// The memory that all connections may take, without the answers of handlers.
int64_t http_bytes(const HttpLimits& limits);

class HttpServer {
 public:
  // `log` and `clock` outlive the server and its replies.
  HttpServer(HttpLimits limits, std::vector<HttpRoute> routes, const EventLog& log,
             HttpHooks hooks = {}, const Clock& clock = real_clock());
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // stop().
  ~HttpServer();

  // Serves from here on. FAILED_PRECONDITION where the system gives no descriptors for it.
  Status start(ListenSockets sockets);
  // Closes all connections and returns when no handler runs. Replies may outlive the server.
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
