#include "server/http/http_server.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <new>

#include "base/check.h"
#include "server/http/http_connection.h"

namespace runnel {

namespace asio = boost::asio;

namespace {

// The parser throws for longer fields. A trailer may be longer than the headers, by kHttpReadBytes.
constexpr int64_t kMaxHeaderBytes = 32 << 10;
// A header of four bytes takes eighty bytes of memory.
constexpr int64_t kHeaderFactor = 24;
constexpr int64_t kConnectionBytes = 24 << 10;

}  // namespace

HttpAnswer http_error(int status, std::string_view message) {
  const char* const type = status < 500 ? "invalid_request_error" : "server_error";
  std::string text;
  for (const char c : message) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return {status, "application/json",
          R"({"error":{"message":")" + text + R"(","type":")" + type +
              "\",\"param\":null,\"code\":null}}\n"};
}

int64_t http_bytes(const HttpLimits& limits) {
  const int64_t count = limits.connections.in_all;
  return count * (kConnectionBytes + kHeaderFactor * limits.header_bytes) +
         2 * std::min(count * limits.body_bytes, limits.bodies_bytes);
}

HttpServer::HttpServer(HttpLimits limits, std::vector<HttpRoute> routes, const EventLog& log,
                       HttpHooks hooks, const Clock& clock)
    : limits_(std::move(limits)),
      routes_(std::move(routes)),
      log_(log),
      hooks_(std::move(hooks)),
      clock_(clock) {
  check(limits_.header_bytes <= kMaxHeaderBytes, "a header's length fits the parser");
}

HttpServer::~HttpServer() { stop(); }

Status HttpServer::start(ListenSockets sockets) {
  try {
    for (int i = 0; i < limits_.threads; ++i) workers_.push_back(std::make_shared<HttpWorker>());
  } catch (const boost::system::system_error& error) {
    workers_.clear();
    return {Code::kFailedPrecondition,
            "cannot serve HTTP on " + sockets.address + ": " + error.code().message()};
  }
  for (const auto& worker : workers_) {
    threads_.emplace_back([this, &context = worker->context] {
      while (!context.stopped()) mishaps_.contain([&] { context.run(); });
    });
  }
  listener_ = std::make_unique<Listener>(std::move(sockets), limits_.connections, log_, clock_);
  listener_->start([this](int socket) { take(socket); });
  return {};
}

// Runs on the listener's thread. Closes a connection for which there is no memory or no descriptor.
void HttpServer::take(int socket) {
  HttpWorker& worker = *workers_[next_++ % workers_.size()];
  AcceptedSocket accepted(socket);
  try {
    asio::post(worker.context, [this, &worker, accepted = std::move(accepted)]() mutable {
      try {
        const auto connection = std::make_shared<HttpConnection>(
            worker, std::move(accepted), limits_, routes_, bodies_, hooks_, clock_);
        connection->run([&] { connection->start(); });
      } catch (const std::exception&) {
      }
    });
  } catch (const std::bad_alloc&) {
  }
}

void HttpServer::stop() {
  if (listener_ != nullptr) listener_->stop();
  for (const auto& worker : workers_) {
    asio::post(worker->context, [&worker = *worker] {
      for (const auto& connection : std::set(worker.connections)) connection->close();
      worker.stays.reset();
    });
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  workers_.clear();
}

}  // namespace runnel
