#include "server/http/head_rules.h"

#include <algorithm>

namespace runnel {
namespace {

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

HeadFault bad_request(std::string message) { return {{400, std::move(message)}}; }

constexpr std::string_view kMethods[] = {"GET",     "HEAD",  "POST",  "PUT",    "DELETE",
                                         "OPTIONS", "PATCH", "TRACE", "CONNECT"};
constexpr std::string_view kEverything = "**";

bool is_one_of(char c, std::string_view characters) {
  return characters.find(c) != std::string_view::npos;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
// RFC 3986: unreserved, sub-delims and the characters of percent-encoding.
bool is_name_character(char c) {
  const char lower = lower_letter(c);
  return is_digit(c) || (lower >= 'a' && lower <= 'z') || is_one_of(c, "-._~%!$&'()*+,;=");
}
bool is_address_character(char c) {
  const char lower = lower_letter(c);
  return is_digit(c) || (lower >= 'a' && lower <= 'f') || is_one_of(c, ":.");
}

bool has_good_target(const RequestHead& head) {
  const bool is_path =
      head.target.starts_with('/') || (!head.authority.empty() && path_of(head.target) == "/");
  const bool asks_server = head.target == "*" && head.method == "OPTIONS";
  return (is_path || asks_server) && !is_one_of('#', head.target) && is_host(head.authority);
}

}  // namespace

RequestTarget split_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_word(target.substr(0, scheme.size()), scheme)) continue;
    const std::string_view rest = target.substr(scheme.size());
    const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
    // Without an authority, a request may not have this form.
    if (authority.empty()) break;
    return {rest.substr(authority.size()), authority};
  }
  return {target, ""};
}

bool is_host(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return false;
    if (end < 3 || !std::ranges::all_of(host.substr(1, end - 1), is_address_character))
      return false;
    host.remove_prefix(end + 1);
    if (!host.empty() && host[0] != ':') return false;
  }
  const size_t colon = std::min(host.find(':'), host.size());
  return std::ranges::all_of(host.substr(0, colon), is_name_character) &&
         std::ranges::all_of(host.substr(std::min(colon + 1, host.size())), is_digit);
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower_letter, lower_letter);
}

std::string_view path_of(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  return path.empty() ? "/" : path;
}

std::optional<HeadFault> check_head(const RequestHead& head) {
  const size_t codings = head.count("transfer-encoding");
  const bool is_chunked = codings == 1 && same_word(head.header("transfer-encoding"), "chunked");
  if (codings > 0 && (!is_chunked || head.version < 11)) {
    return HeadFault{.refusal = {501, "transfer-encoding must be chunked alone, by HTTP/1.1"},
                     .hides_end = true};
  }
  // The parser accepts a repeated length if both are equal.
  if (head.count("content-length") > 1 ||
      head.header("content-length").find(',') != std::string_view::npos) {
    return HeadFault{.refusal = {400, "there must be one content-length at most"},
                     .hides_end = true};
  }
  const size_t hosts = head.count("host");
  if (hosts > 1 || (hosts == 0 && head.version == 11)) {
    return bad_request("there must be one host header");
  }
  if (!is_host(head.header("host")))
    return bad_request("the host header must be HOST or HOST:PORT");
  if (std::ranges::find(kMethods, head.method) == std::end(kMethods)) {
    return HeadFault{.refusal = {501, "the method must be one of HTTP's, as GET and POST"}};
  }
  if (!has_good_target(head)) {
    return bad_request("the target must be a path that begins with /, or http://HOST/PATH");
  }
  // If a header is repeated, a proxy in front of this server may have checked another copy than the
  // one used here.
  for (const std::string_view once : {"Authorization", "Content-Type", "Origin"}) {
    if (head.count(once) > 1) {
      return bad_request("there must be one " + std::string(once) + " header at most");
    }
  }
  return std::nullopt;
}

RouteMatch find_route(const std::vector<HttpRoute>& routes, const RequestHead& head) {
  const std::string_view path = path_of(head.target);
  const std::string_view method = head.method == "HEAD" ? "GET" : head.method;
  RouteMatch match;
  const HttpRoute* otherwise = nullptr;
  std::string others;  // the methods of the routes that match every path
  for (const HttpRoute& route : routes) {
    const bool everywhere = route.path == kEverything;
    if (!everywhere && !match_path(route.path, path)) continue;
    const HttpRoute*& found = everywhere ? otherwise : match.route;
    if (route.method == method && found == nullptr) found = &route;
    (everywhere ? others : match.allow) +=
        ", " + route.method + (route.method == "GET" ? ", HEAD" : "");
  }
  const bool is_path = !match.allow.empty();
  if (match.route == nullptr) match.route = otherwise;
  match.allow = (match.allow + (is_path || match.route != nullptr ? others : "")).erase(0, 2);
  if (match.route != nullptr) return match;
  match.refusal = is_path ? HttpRefusal{405, "this path takes " + match.allow}
                          : HttpRefusal{404, "nothing is served at this path"};
  return match;
}

std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path) {
  if (pattern == kEverything) return "";
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
