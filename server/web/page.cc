#include "server/web/page.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "server/web/page_files.h"

namespace runnel {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

HttpHandler sender(const PageFile& file) {
  return [&file](const HttpRequest&, HttpReply reply) {
    reply.set_header("Content-Security-Policy", kPolicy);
    reply.set_header("X-Content-Type-Options", "nosniff");
    reply.set_header("Referrer-Policy", "no-referrer");
    reply.set_header("Cross-Origin-Resource-Policy", "same-origin");
    reply.set_header("Cache-Control", "no-cache");
    reply.send({200, std::string(file.content_type), std::string(file.content)});
  };
}

}  // namespace

std::vector<HttpRoute> page_routes(const Gate& gate) {
  std::vector<HttpRoute> routes;
  for (const PageFile& file : page_files()) {
    routes.push_back({"GET", std::string(file.path), gate.guard(sender(file))});
  }
  return routes;
}

int64_t largest_page_answer() {
  int64_t most = 0;
  for (const PageFile& file : page_files()) most = std::max(most, std::ssize(file.content));
  return most;
}

}  // namespace runnel
