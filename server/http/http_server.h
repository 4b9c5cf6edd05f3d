// HTTP/1.1 for the faces of the server that speak it: connections, their bounds, requests and
// answers. What is answered is up to the handlers of its routes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/event_log.h"
#include "server/listener.h"

namespace runnel {

class HttpWorker;

// Valid until the handler returns.
struct HttpRequest {
  std::string_view method;  // "GET" may be "HEAD", too: the body of its answer is left out
  std::string_view target;  // as the client sent it, with its query
  std::string_view body;
  std::string_view peer;  // network_of() the client
  // The value of the first header of a name, in whatever case; "" where there is none.
  std::function<std::string_view(std::string_view name)> header;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type;
  std::string body;
};

// The error {"error":{"message":...}}. `message` must need no escapes in JSON.
HttpAnswer http_error(int status, std::string_view message);

// Where the answer to one request goes: either send(), or begin(), write() and end(). No call
// waits, and none needs the client to be there still. Calls may come from any thread, one at a
// time. A reply whose last copy goes before the answer is complete is answered with 500, or cut
// off.
class HttpReply {
 public:
  class Exchange;
  explicit HttpReply(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  // The whole answer.
  void send(HttpAnswer answer);

  // The head of an answer that comes in chunks.
  void begin(int status, std::string_view content_type);
  void write(std::string_view chunk);
  void end();

  // Bytes given to the connection that the system has not taken yet: a slow client lets them grow.
  int64_t waiting() const;

  // Has `gone` called, once and on a thread of the server, when the client closes its side of the
  // connection, or it breaks, before the answer is complete. Only within the handler. `gone` must
  // not block.
  void on_gone(std::function<void()> gone);

 private:
  std::shared_ptr<Exchange> exchange_;
};

// Called on a thread of the server: must not block.
using HttpHandler = std::function<void(const HttpRequest&, HttpReply)>;

// "GET" answers HEAD as well. The path is what comes before "?" in a target.
struct HttpRoute {
  std::string method, path;
  HttpHandler handle;
};

struct HttpLimits {
  int threads = 1;
  ConnectionLimits connections;
  int64_t header_bytes = 8 << 10;  // of the request line and all headers
  int64_t body_bytes = 0;
  Duration read_timeout = std::chrono::seconds(10);   // from a request's first byte to its last
  Duration idle_timeout = std::chrono::seconds(60);   // between requests
  Duration write_timeout = std::chrono::seconds(30);  // in which a client takes nothing
};

// What one connection holds at most, the answers of handlers aside.
int64_t http_connection_bytes(const HttpLimits& limits);

class HttpServer {
 public:
  // `log` outlives the server.
  HttpServer(HttpLimits limits, std::vector<HttpRoute> routes, const EventLog& log);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  // stop().
  ~HttpServer();

  // Serves from here on.
  void start(ListenSockets sockets);
  // Closes all connections, and returns when no handler runs. Replies may outlive the server.
  void stop();

  const std::string& address() const { return listener_->address(); }
  // Connections that are open.
  int connections() const { return listener_->connections(); }

 private:
  void take(int socket);

  const HttpLimits limits_;
  const std::vector<HttpRoute> routes_;
  const EventLog& log_;
  std::vector<std::shared_ptr<HttpWorker>> workers_;
  std::vector<std::thread> threads_;
  size_t next_ = 0;  // the worker that the next connection goes to
  std::unique_ptr<Listener> listener_;
};

}  // namespace runnel
