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
  // the server's own pages, each separated by commas.
  Gate(std::string_view hosts, std::string_view origins);

  // `handle` behind this gate, which it keeps: a foreign Host or Origin gets 403, a POST or PUT
  // that is not JSON in UTF-8 415. Answers to an origin that is let in say so to its browser.
  HttpHandler guard(HttpHandler handle) const;
  // The same for bodies of another media type.
  HttpHandler guard(std::string content_type, HttpHandler handle) const;

  // Answers a browser that asks, with OPTIONS, what it may send.
  HttpHandler preflight() const;

 private:
  struct Names {
    std::set<std::string, std::less<>> hosts, origins;
  };
  static bool admit(const Names& names, const HttpRequest& request, HttpReply& reply);

  std::shared_ptr<const Names> names_;
};

}  // namespace runnel
