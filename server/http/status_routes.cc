#include "server/http/status_routes.h"

#include <utility>

namespace runnel {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace

std::vector<HttpRoute> status_routes(std::function<bool()> is_ready,
                                     std::function<std::string()> metrics) {
  auto health = [](const HttpRequest&, HttpReply reply) { reply.send({200, kText, "ok\n"}); };
  auto readiness = [is_ready = std::move(is_ready)](const HttpRequest&, HttpReply reply) {
    if (is_ready()) return reply.send({200, kText, "ready\n"});
    reply.send({503, kText, "not ready\n"});
  };
  auto counts = [metrics = std::move(metrics)](const HttpRequest&, HttpReply reply) {
    reply.send({200, kPrometheusText, metrics()});
  };
  return {{"GET", "/healthz", std::move(health)},
          {"GET", "/readyz", std::move(readiness)},
          {"GET", "/metrics", std::move(counts)}};
}

}  // namespace runnel
