#include "server/http/gate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "server/http/header_text.h"

namespace runnel {
namespace {

constexpr const char* kAllMethods = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
// Browsers let pages of other origins read these headers in addition to the few that are always
// allowed.
constexpr const char* kExposed =
    "Retry-After, Retry-After-Ms, X-Should-Retry, X-Session-Id, WWW-Authenticate, Allow";
constexpr std::array<std::string_view, 3> kLoopback = {"localhost", "127.0.0.1", "[::1]"};

std::set<std::string, std::less<>> listed(std::string_view text) {
  std::set<std::string, std::less<>> names;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view name = trimmed(text.substr(0, comma));
    if (!name.empty()) names.insert(lower(name));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return names;
}

// "localhost" of "localhost:8000" and of "localhost.", "[::1]" of "[::1]:8000".
std::string_view name_of_host(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon);
  const std::string_view name = has_port ? host.substr(0, colon) : host;
  return name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
}

// Whether the text is a list of header names, separated by commas, as browsers send it; not empty.
bool is_list_of_names(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~, ").find(static_cast<char>(c)) !=
               std::string_view::npos;
  });
}

// Whether the page was sent by this server.
bool is_own(std::string_view origin, std::string_view host) {
  return origin == "http://" + std::string(host) || origin == "https://" + std::string(host);
}

// The fault of the headers that describe the body; empty if they have none.
std::string fault_of_body(std::string_view expected, const HttpRequest& request) {
  const std::string type = lower(request.header("content-type"));
  const size_t semicolon = type.find(';');
  if (trimmed(std::string_view(type).substr(0, semicolon)) != expected) {
    return "Content-Type must be " + std::string(expected);
  }
  const size_t charset = type.find("charset=");
  if (charset != std::string::npos) {
    const std::string_view name = trimmed(std::string_view(type).substr(charset + 8));
    if (name != "utf-8" && name != "\"utf-8\"") return "the charset of a body must be utf-8";
  }
  const std::string coding = lower(request.header("content-encoding"));
  if (coding.empty() || coding == "identity") return "";
  return "a body must come without Content-Encoding";
}

}  // namespace

Gate::Gate(std::string_view hosts, std::string_view origins, OnHttpRefusal on_refusal) {
  Rules rules{listed(hosts), listed(origins), std::move(on_refusal)};
  rules.hosts.insert(kLoopback.begin(), kLoopback.end());
  rules_ = std::make_shared<const Rules>(std::move(rules));
}

// The status is 0 if the request is admitted.
HttpRefusal Gate::refusal_of(const Rules& rules, std::string_view content_type,
                             const HttpRequest& request) {
  const std::string host = lower(request.header("host"));
  if (!rules.hosts.contains(name_of_host(host))) {
    return {403, "the Host of the request is " + quote(host) +
                     ", which is not a name of this server; its operator can add it with "
                     "--http-hosts"};
  }
  const std::string origin = lower(request.header("origin"));
  if (!origin.empty() && !is_own(origin, host) && !rules.origins.contains(origin)) {
    return {403, "pages of the Origin " + quote(origin) +
                     " may not ask this server; its operator can add it with --http-origins"};
  }
  const bool has_body = request.method == "POST" || request.method == "PUT";
  std::string fault = has_body ? fault_of_body(content_type, request) : "";
  return {fault.empty() ? 0 : 415, std::move(fault)};
}

HttpHandler Gate::guard(HttpHandler handle) const {
  return guard("application/json", std::move(handle));
}

HttpHandler Gate::guard(std::string content_type, HttpHandler handle) const {
  return [rules = rules_, type = std::move(content_type), handle = std::move(handle)](
             const HttpRequest& request, HttpReply reply) {
    HttpRefusal refusal = refusal_of(*rules, type, request);
    if (refusal.status == 0) return handle(request, std::move(reply));
    refusal.peer = request.peer;
    if (rules->on_refusal) rules->on_refusal(refusal);
    if (refusal.status == 415) reply.set_header("Accept-Encoding", "identity");
    reply.send(http_error(refusal.status, refusal.message));
  };
}

HttpHeaders Gate::headers_for(const HttpHeaderOf& header) const {
  HttpHeaders headers = {{"Vary", "Origin"}};
  const std::string_view origin = header("origin");
  if (!rules_->origins.contains(lower(origin))) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  return headers;
}

void Gate::preflight(const HttpRequest& request, HttpReply reply) {
  const std::string_view asked = request.header("access-control-request-headers");
  reply.set_header("Allow", std::string(request.allow));
  // All methods, so that a page sees the 404 or 405 that answers its request.
  reply.set_header("Access-Control-Allow-Methods", kAllMethods);
  reply.set_header("Access-Control-Allow-Headers",
                   is_list_of_names(asked) ? std::string(asked) : "Authorization, Content-Type");
  reply.set_header("Access-Control-Max-Age", "600");
  reply.send({204, "text/plain", ""});
}

}  // namespace runnel
