// OpenAI's API in this process, on a real socket, with a model that writes bytes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "server/host/server_context.h"
#include "server/http/http_server.h"
#include "server/process/http_routes.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_models.h"

namespace runnel {

struct ApiAnswer {
  int status = 0;
  std::string head;
  Json body;  // null where it is no JSON

  std::string error(const char* member) const;  // "" where it is null
};

class OpenAiServer {
 public:
  struct Options {
    std::string keys = {};  // path
    int64_t call_bytes = limits::kCallBytes.default_value;
    std::string hosts = {}, origins = {};
    const Clock& clock = real_clock();  // outlives the server
  };
  // With one model, "fake", ready.
  OpenAiServer() : OpenAiServer(Options()) {}
  explicit OpenAiServer(const Options& options, std::function<void()> on_submit = {});
  // The model has text where the spec has no image.
  OpenAiServer(const Options& options, std::function<void()> on_submit, const Spec& spec);
  // With this model.
  OpenAiServer(const Options& options, ServedModel model);
  ~OpenAiServer();

  HttpClient client() const { return HttpClient(server->address()); }
  // The text of a request, its headers complete; a body is JSON unless they say otherwise.
  static std::string request(const std::string& method, const std::string& path,
                             const std::string& body = "", const std::string& headers = "");
  ApiAnswer ask(const std::string& bytes) const;
  ApiAnswer get(const std::string& path) const { return ask(request("GET", path)); }
  ApiAnswer post(const std::string& path, const Json& body, const std::string& headers = "") const;
  ApiAnswer complete(const Json& body) const { return post("/v1/completions", body); }
  // The events of a stream; the last is "[DONE]" where it came to its end.
  std::vector<std::string> stream(Json body, const std::string& path = "/v1/completions") const;

  int64_t sessions_free() const;

  std::ostringstream log_text;
  EventLog log{"debug", false, log_text};
  ServerContext state;
  std::unique_ptr<HttpServer> server;  // first to go
};

// The model's spec.
Spec byte_spec();

}  // namespace runnel
