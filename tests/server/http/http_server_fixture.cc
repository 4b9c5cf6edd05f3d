#include "tests/server/http/http_server_fixture.h"

namespace runnel {
namespace {

// A handler that answers with this text.
HttpHandler answer(std::string text) {
  return [text = std::move(text)](const HttpRequest&, HttpReply reply) {
    reply.send({200, "text/plain", text});
  };
}

}  // namespace

std::string get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

std::string post(const std::string& headers, const std::string& body) {
  return "POST /echo HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}

HttpLimits small_limits() {
  HttpLimits limits;
  limits.threads = 2;
  limits.connections = {.in_all = 32, .per_peer = 16, .name = "the limit"};
  limits.header_bytes = 1024;
  limits.body_bytes = 1000;
  return limits;
}

std::vector<HttpRoute> HttpServerTest::routes() {
  return {
      {"GET", "/hello", answer("hello")},
      {"POST", "/echo",
       [](const HttpRequest& request, HttpReply reply) {
         reply.send({200, "text/plain",
                     std::string(request.method) + " " + std::string(request.target) + " " +
                         std::string(request.peer) + " [" + std::string(request.header("x-a")) +
                         "] [" + std::string(request.body) + "]"});
       }},
      {"GET", "/later",
       [this](const HttpRequest&, HttpReply reply) {
         reply.on_gone([this] { handed.tell_gone(); });
         handed.put(std::move(reply));
       }},
      {"GET", "/of/*/part",
       [](const HttpRequest& request, HttpReply reply) {
         reply.set_header("X-Part", std::string(request.part));
         reply.send({200, "text/plain", "part"});
       }},
      {"GET", "/dropped", [](const HttpRequest&, const HttpReply&) {}},
      {"GET", "/echo", answer("got")},
      {"PUT", "/pieces",
       [this](const HttpRequest&, HttpReply reply) { handed.put(std::move(reply)); }, true},
  };
}

}  // namespace runnel
