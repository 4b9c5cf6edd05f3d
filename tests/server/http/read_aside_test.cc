#include "server/http/read_aside.h"

#include <gtest/gtest.h>

#include <future>
#include <sstream>

#include "tests/server/http/http_client.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

// A short body can name much that the server keeps.
TEST(ReadAside, AShortBodyThatTakesLongDoesNotDelayOthers) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  ServerContext state(log);
  std::promise<void> read;
  const auto slow = [&](const HttpRequest& request, HttpReply reply) {
    read.get_future().wait();
    reply.send({200, "text/plain", std::string(request.body)});
  };
  const auto quick = [](const HttpRequest&, HttpReply reply) {
    reply.send({200, "text/plain", "quick"});
  };
  HttpLimits limits;  // has one thread
  limits.connections.in_all = 4;
  limits.body_bytes = 100;
  HttpServer server(
      limits,
      {{"POST", "/slow", read_aside(state, slow, Aside::kAlways)}, {"GET", "/quick", quick}}, log);
  EXPECT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  HttpClient first(server.address()), second(server.address());
  first.send(OpenAiServer::request("POST", "/slow", "a"));
  EXPECT_TRUE(eventually([&] { return state.calls.count() == 1; }));
  second.send(OpenAiServer::request("GET", "/quick"));
  EXPECT_EQ(second.response().body, "quick");
  read.set_value();
  EXPECT_EQ(first.response().body, "a");
  server.stop();
}

TEST(ReadAside, ALongBodyDoesNotDelayOthers) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  ServerContext state(log);
  std::promise<void> read;
  const auto slow = [&](const HttpRequest& request, HttpReply reply) {
    if (request.body.size() > 5) read.get_future().wait();
    reply.send({200, "text/plain",
                std::to_string(request.body.size()) + std::string(request.header("traceparent"))});
  };
  HttpLimits limits;  // has one thread
  limits.connections.in_all = 4;
  limits.body_bytes = 10000;
  HttpServer server(limits, {{"POST", "/slow", read_aside(state, slow)}}, log);
  EXPECT_TRUE(server.start(listen_on("127.0.0.1:0").value()).ok());
  HttpClient long_one(server.address()), short_one(server.address());
  long_one.send(OpenAiServer::request("POST", "/slow", std::string(9000, 'x'),
                                      "Host: a\r\nTraceparent: t\r\n"));
  EXPECT_TRUE(eventually([&] { return state.calls.count() == 1; }));
  EXPECT_GE(state.memory.held(), 9000) << "what is read later is counted";
  short_one.send(OpenAiServer::request("POST", "/slow", "short"));
  EXPECT_EQ(short_one.response().body, "5");
  read.set_value();
  EXPECT_EQ(long_one.response().body, "9000t");
  EXPECT_TRUE(eventually([&] { return state.calls.count() == 0; }));
  EXPECT_EQ(state.memory.held(), 0);
  server.stop();
}

}  // namespace
}  // namespace runnel
