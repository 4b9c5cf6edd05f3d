// The rules for a request's head, apart from how it is parsed.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"

namespace runnel {

// A head that has been parsed. It is valid as long as the parser's memory.
struct RequestHead {
  unsigned version = 11;  // 10 for HTTP/1.0
  std::string_view method;
  std::string_view target;                             // without scheme and authority
  std::string_view authority = {};                     // "host:port" in the target; "": none
  std::function<size_t(std::string_view name)> count;  // the number of headers with a name
  HttpHeaderOf header;  // the first value of a header; "": no such header
};

// A target in the forms of RFC 9112, 3.2: "/path?query", "http://host:port/path?query" or "*".
struct RequestTarget {
  std::string_view from_path;  // the target without scheme and authority
  std::string_view authority;
};
RequestTarget split_target(std::string_view target);

// True for the value of a Host header: a name, an IPv4 address or an IPv6 address in brackets, with
// or without a port (RFC 9112, 3.2). Also true for an empty value.
bool is_host(std::string_view host);

// Why a head is refused.
struct HeadFault {
  HttpRefusal refusal;
  bool hides_end = false;  // the end of the body is unknown, so the connection must be closed
};

// Checks the parts of the head that decide where the request ends and which host it is for:
// - 501: HTTP does not have the method, or the transfer coding is not "chunked".
// - 400: the target or host has a wrong form, or a header occurs more often than it may.
std::optional<HeadFault> check_head(const RequestHead& head);

// A request's route, or why there is none: 404, or 405.
struct RouteMatch {
  const HttpRoute* route = nullptr;
  std::string allow;  // the methods that the path takes; "": none
  HttpRefusal refusal = {};
};
RouteMatch find_route(const std::vector<HttpRoute>& routes, const RequestHead& head);

// The part of `path` that the star of `pattern` matches; "" if both are the same. None if they do
// not match.
std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path);

// The path of a target, without its query; "/" for an empty one.
std::string_view path_of(std::string_view target);

// True if two ASCII texts are equal except for the case of letters.
bool same_word(std::string_view a, std::string_view b);

}  // namespace runnel
