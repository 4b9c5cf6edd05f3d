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
  std::string_view method, target;
  std::function<size_t(std::string_view name)> count;             // of the headers of a name
  std::function<std::string_view(std::string_view name)> header;  // the first one; "" without one
};

// Why a head is refused.
struct HeadFault {
  HttpRefusal refusal;
  bool hides_end = false;  // nobody can know where the body ends, so the connection must close
  std::string allow = {};  // the Allow header of the answer; empty: none
};

// Checks the headers that decide where a request ends and whose it is: 501 for a transfer coding
// other than "chunked", 400 for a header that must be there at most once.
std::optional<HeadFault> check_headers(const RequestHead& head);

// Finds the route of a request; a HEAD has that of GET. Null where there is none: then `fault` is
// 404, or 405 with the methods that the path takes.
const HttpRoute* find_route(const std::vector<HttpRoute>& routes, const RequestHead& head,
                            HeadFault& fault);

// The text that stands for the star of `pattern` in `path`; "" where both are the same; null where
// they do not fit.
std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path);

// The path of a target, without its query.
std::string_view path_of(std::string_view target);

// True for equal ASCII texts, whatever the case of their letters.
bool same_word(std::string_view a, std::string_view b);

}  // namespace runnel
