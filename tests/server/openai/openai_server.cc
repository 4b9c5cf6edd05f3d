#include "tests/server/openai/openai_server.h"

#include <gtest/gtest.h>

#include "tests/base/eventually.h"
#include "tests/engine/fake_model.h"

namespace runnel {

std::string ApiAnswer::error(const char* member) const {
  const Json& value = body.at("error").at(member);
  return value.is_null() ? "" : value.get<std::string>();
}

Spec byte_spec() { return fake_spec(); }

std::vector<int32_t> expected_values(const std::vector<int32_t>& prompt, int count,
                                     uint32_t sample) {
  return FakeModel::expected(byte_spec(), prompt, 7, sample, count);
}

std::string bytes_of(const std::vector<int32_t>& values) { return {values.begin(), values.end()}; }

OpenAiServer::OpenAiServer(const Options& options, std::function<void()> on_submit)
    : OpenAiServer(options, std::move(on_submit), byte_spec()) {}

OpenAiServer::OpenAiServer(const Options& options, std::function<void()> on_submit,
                           const Spec& spec)
    : OpenAiServer(options, served_fake("fake", std::move(on_submit), {}, kTestLimits, spec)) {}

OpenAiServer::OpenAiServer(const Options& options, ServedModel model)
    : state(log, options.clock, options.call_bytes) {
  state.text_bytes = 1000;
  state.stall_timeout = kPatience;
  if (!options.keys.empty()) {
    EXPECT_TRUE(state.callers.ask_for_keys(options.keys).ok());
  }
  if (!model.engine->spec().image && model.tokenizer == nullptr) {
    model.tokenizer = Tokenizer::of_bytes();
  }
  EXPECT_TRUE(state.models.add(std::move(model)).ok());
  state.models.open();
  HttpLimits limits;
  limits.threads = 2;
  limits.connections = {.in_all = 64, .per_peer = 0, .name = "the limit"};
  limits.body_bytes = 64 << 10;
  const auto on_refusal = [this](const HttpRefusal& refusal) { report_refusal(state, refusal); };
  const Gate gate(options.hosts, options.origins, on_refusal);
  const HttpHooks hooks = {
      .on_refusal = on_refusal,
      .headers_for = [gate](const HttpHeaderOf& header) { return gate.headers_for(header); }};
  server = std::make_unique<HttpServer>(limits, http_routes(state, gate), log, hooks, state.clock);
  EXPECT_TRUE(server->start(listen_on("127.0.0.1:0").value()).ok());
}

OpenAiServer::~OpenAiServer() {
  server->stop();
  EXPECT_TRUE(state.calls.wait_until_none(kPatience));
}

std::string OpenAiServer::request(const std::string& method, const std::string& path,
                                  const std::string& body, const std::string& headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\n" + headers;
  if (headers.find("Host:") == std::string::npos) text += "Host: localhost:8000\r\n";
  if (method == "POST" || method == "PUT") {
    if (headers.find("Content-Type:") == std::string::npos) {
      text += "Content-Type: application/json\r\n";
    }
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return text + "\r\n" + body;
}

ApiAnswer OpenAiServer::ask(const std::string& bytes) const {
  HttpClient one = client();
  one.send(bytes);
  const HttpResponse response = one.response();
  return {response.status, response.head, Json::parse(response.body, nullptr, false)};
}

ApiAnswer OpenAiServer::post(const std::string& path, const Json& body,
                             const std::string& headers) const {
  return ask(request("POST", path, body.dump(), headers));
}

std::vector<std::string> OpenAiServer::stream(Json body, const std::string& path) const {
  body["stream"] = true;
  HttpClient one = client();
  one.send(request("POST", path, body.dump()));
  std::string text = one.response().body;
  std::vector<std::string> events;
  for (size_t end = 0; (end = text.find("\n\n")) != std::string::npos; text.erase(0, end + 2)) {
    std::string event = text.substr(0, end);
    const std::string data =
        event.starts_with("event: ") ? event.substr(event.find('\n') + 1) : event;
    EXPECT_EQ(data.substr(0, 6), "data: ");
    events.push_back(data.substr(6));
  }
  EXPECT_EQ(text, "");
  return events;
}

int64_t OpenAiServer::sessions_free() const {
  return state.models.all()->begin()->second->engine->stats().sessions_free;
}

}  // namespace runnel
