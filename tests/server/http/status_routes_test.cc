#include "server/http/status_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <sstream>

#include "tests/server/http/http_client.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

TEST(StatusRoutes, ReportWhetherTheProcessIsAliveAndReady) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  std::atomic<bool> ready = false;
  int asked = 0;
  HttpServer server({.connections = {.in_all = 4}},
                    status_routes([&] { return ready.load(); },
                                  [&] { return "asked " + std::to_string(++asked) + "\n"; }),
                    log);
  EXPECT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  HttpClient client(server.address());
  const auto get = [&](const std::string& path) {
    client.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    return client.response();
  };
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(get("/readyz").status, 503);
  ready = true;
  EXPECT_EQ(get("/readyz").status, 200);
  ready = false;
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/healthz").status, 200);
  const HttpResponse metrics = get("/metrics");
  EXPECT_EQ(metrics.body, "asked 1\n");
  EXPECT_THAT(metrics.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
  EXPECT_EQ(get("/metrics").body, "asked 2\n");
}

}  // namespace
}  // namespace runnel
