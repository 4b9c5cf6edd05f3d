// A server over HTTP on a free port for tests of its rules, and the requests that they send.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "server/http/http_server.h"
#include "tests/base/eventually.h"
#include "tests/server/http/http_client.h"

namespace runnel {

// A request for `target` without a body.
std::string get(const std::string& target);
// A request to /echo with these further headers.
std::string post(const std::string& headers, const std::string& body);

// Limits that a test reaches quickly: 32 connections, 1,024 bytes of headers, 1,000 of a body.
HttpLimits small_limits();

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

// A server of the paths of routes(), on a free port.
class HttpServerTest : public ::testing::Test {
 protected:
  explicit HttpServerTest(HttpLimits limits = small_limits()) : server(limits, routes(), log) {
    EXPECT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  }

  // The paths of the server. /later and /pieces give their replies to `handed`.
  std::vector<HttpRoute> routes();

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

}  // namespace runnel
