// Checks the Host and Origin headers that browsers send. So a foreign web page cannot reach a
// server on loopback through the browser of its visitor.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace runnel {

class Gate {
 public:
  // `hosts`: host names that are allowed in addition to those of loopback. `origins`: origins such
  // as "https://app.example.org" that are allowed in addition to the server's own pages. Both are
  // separated by commas. `on_refusal`: as for HttpServer.
  Gate(std::string_view hosts, std::string_view origins, OnHttpRefusal on_refusal = nullptr);

  // A handler that checks each request before it calls `handle`. A foreign Host or Origin gets 403.
  // A POST or PUT whose body is not JSON in UTF-8 gets 415.
  HttpHandler guard(HttpHandler handle) const;
  // The same for bodies of another media type.
  HttpHandler guard(std::string content_type, HttpHandler handle) const;

  // The headers for every answer to a request with these headers. They let the pages of an allowed
  // origin read the answer, its status and its headers about retries.
  HttpHeaders headers_for(const HttpHeaderOf& header) const;

  // Answers a preflight, the OPTIONS request that a browser sends first. It allows any method, and
  // all headers that the page asked for. "Allow" has the methods of the path.
  static void preflight(const HttpRequest& request, HttpReply reply);

 private:
  struct Rules {
    std::set<std::string, std::less<>> hosts, origins;
    OnHttpRefusal on_refusal;
  };
  static HttpRefusal refusal_of(const Rules& rules, std::string_view content_type,
                                const HttpRequest& request);

  std::shared_ptr<const Rules> rules_;
};

}  // namespace runnel
