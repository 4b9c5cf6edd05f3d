#include "server/http/head_rules.h"

#include <algorithm>

namespace runnel {
namespace {

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

HeadFault bad_request(std::string message) { return {{400, std::move(message)}}; }

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower_letter, lower_letter);
}

std::string_view path_of(std::string_view target) { return target.substr(0, target.find('?')); }

std::optional<HeadFault> check_headers(const RequestHead& head) {
  const size_t codings = head.count("transfer-encoding");
  const bool is_chunked = codings == 1 && same_word(head.header("transfer-encoding"), "chunked");
  if (codings > 0 && (!is_chunked || head.version < 11)) {
    return HeadFault{.refusal = {501, "transfer-encoding must be chunked alone, by HTTP/1.1"},
                     .hides_end = true};
  }
  // The parser takes a length that is said twice if both are equal.
  if (head.count("content-length") > 1 ||
      head.header("content-length").find(',') != std::string_view::npos) {
    return HeadFault{.refusal = {400, "there must be one content-length at most"},
                     .hides_end = true};
  }
  const size_t hosts = head.count("host");
  if (hosts > 1 || (hosts == 0 && head.version == 11)) {
    return bad_request("there must be one host header");
  }
  // A proxy in front of this server may have looked at another one than would be taken here.
  for (const std::string_view once : {"Authorization", "Content-Type", "Origin"}) {
    if (head.count(once) > 1) {
      return bad_request("there must be one " + std::string(once) + " header at most");
    }
  }
  return std::nullopt;
}

const HttpRoute* find_route(const std::vector<HttpRoute>& routes, const RequestHead& head,
                            HeadFault& fault) {
  const std::string_view path = path_of(head.target);
  const std::string_view method = head.method == "HEAD" ? "GET" : head.method;
  std::string allow;
  for (const HttpRoute& route : routes) {
    if (!match_path(route.path, path)) continue;
    if (route.method == method) return &route;
    allow += (allow.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
  }
  if (allow.empty()) {
    fault.refusal = {404, "nothing is served at this path"};
  } else {
    fault.refusal = {405, "this path takes " + allow};
    fault.allow = std::move(allow);
  }
  return nullptr;
}

std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return pattern == path ? std::optional<std::string_view>("") : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (path.size() <= before.size() + after.size()) return std::nullopt;
  if (!path.starts_with(before) || !path.ends_with(after)) return std::nullopt;
  path.remove_prefix(before.size());
  path.remove_suffix(after.size());
  return path.find('/') == std::string_view::npos ? std::optional(path) : std::nullopt;
}

}  // namespace runnel
