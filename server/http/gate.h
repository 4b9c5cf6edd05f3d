// Who may ask by HTTP, as browsers tell: a page from elsewhere may not reach a server on loopback
// through the browser of somebody who visits it.
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
  // Host names beside those of loopback, and origins ("https://app.example.org") beside those of
  // the server's own pages, each separated by commas. `on_refusal` as of HttpServer.
  Gate(std::string_view hosts, std::string_view origins, OnHttpRefusal on_refusal = nullptr);

  // `handle` behind this gate, which it keeps: a foreign Host or Origin gets 403, a POST or PUT
  // that is not JSON in UTF-8 415.
  HttpHandler guard(HttpHandler handle) const;
  // The same for bodies of another media type.
  HttpHandler guard(std::string content_type, HttpHandler handle) const;

  // Headers for every answer to a request with these headers: they let the pages of an origin that
  // may ask read the answer, its status and its headers about retries.
  HttpHeaders headers_for(const HttpHeaderOf& header) const;

  // Answers OPTIONS, by which a browser asks first what a page may send: any method, and all
  // headers that the page asked for. "Allow" has the methods of the path.
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
