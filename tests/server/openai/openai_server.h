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

inline const std::string kChatPath = "/v1/chat/completions";

struct ApiAnswer {
  int status = 0;
  std::string head;
  Json body;  // null if it is not JSON

  std::string error(const char* member) const;  // "" if null
};

class OpenAiServer {
 public:
  struct Options {
    std::string keys = {};  // the path of the key file
    int64_t call_bytes = limits::kCallBytes.default_value;
    std::string hosts = {}, origins = {};
    const Clock& clock = real_clock();  // must outlive the server
  };
  // Serves one model, "fake", at once.
  OpenAiServer() : OpenAiServer(Options()) {}
  explicit OpenAiServer(const Options& options, std::function<void()> on_submit = {});
  // The model has text if the spec has no image.
  OpenAiServer(const Options& options, std::function<void()> on_submit, const Spec& spec);
  // Serves this model.
  OpenAiServer(const Options& options, ServedModel model);
  ~OpenAiServer();

  HttpClient client() const { return HttpClient(server->address()); }
  // A request with all its headers. The body is JSON unless `headers` name another type.
  static std::string request(const std::string& method, const std::string& path,
                             const std::string& body = "", const std::string& headers = "");
  ApiAnswer ask(const std::string& bytes) const;
  ApiAnswer get(const std::string& path) const { return ask(request("GET", path)); }
  ApiAnswer post(const std::string& path, const Json& body, const std::string& headers = "") const;
  ApiAnswer complete(const Json& body) const { return post("/v1/completions", body); }
  // The events of a stream. The last one is "[DONE]" if the stream was completed.
  std::vector<std::string> stream(Json body, const std::string& path = "/v1/completions") const;

  int64_t sessions_free() const;

  std::ostringstream log_text;
  EventLog log{"debug", false, log_text};
  ServerContext state;
  std::unique_ptr<HttpServer> server;  // destroyed first
};

// The spec of the model.
Spec byte_spec();
// The values that the fake model of byte_spec() samples after `prompt` with seed 7.
std::vector<int32_t> expected_values(const std::vector<int32_t>& prompt, int count,
                                     uint32_t sample = 0);
// The text of values of byte_spec().
std::string bytes_of(const std::vector<int32_t>& values);

}  // namespace runnel
