// A server in this process with small models, and clients on a real socket.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "runnel/v1/inference.grpc.pb.h"
#include "runnel/v1/models.grpc.pb.h"
#include "runnel/v1/sessions.grpc.pb.h"
#include "server/process/server.h"
#include "tests/base/eventually.h"
#include "tests/engine/fake_model.h"
#include "tests/server/test_models.h"

namespace runnel {

inline constexpr auto kAborted = grpc::StatusCode::ABORTED;
inline constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
inline constexpr auto kPrecondition = grpc::StatusCode::FAILED_PRECONDITION;

// All results of one Generate call, checked as they arrive: Queued, then Started, positions without
// gaps, nothing after Finished.
struct Generated {
  grpc::Status status;
  std::multimap<std::string, std::string> trailing;
  std::vector<int> places;  // of each Queued message
  v1::Started started;
  std::vector<std::string> order;  // "started", "values", "finished"
  std::map<int, std::vector<int32_t>> values;
  std::map<int, std::vector<float>> log_probs;
  std::map<int, std::string> text;
  std::map<int, std::vector<v1::TopLogProbs>> top;
  std::map<int, int64_t> first_position;
  std::map<int, v1::Finished> finished;
  std::vector<int> message_values;  // of each Values message

  void take(const v1::GenerateResponse& response);
};

// All results of one Score call.
struct ScoreOutcome {
  grpc::Status status;
  std::vector<float> log_probs;
  std::vector<int64_t> positions;  // of each chunk
  v1::ScoreTotal total;
  bool has_total = false;
};

// The result of a call whose messages are raw bytes.
struct RawOutcome {
  grpc::Status status;
  std::vector<std::string> responses;
};

class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}, const Clock& clock = real_clock());
  // A started server with one model, ready to serve.
  explicit TestServer(ServedModel model, ServerOptions options = {},
                      const Clock& clock = real_clock());
  ~TestServer();

  // Each makes a call and returns its results.
  Generated generate(const v1::GenerateRequest& request,
                     std::chrono::milliseconds timeout = kPatience);
  ScoreOutcome score(const std::vector<v1::ScoreRequest>& chunks);
  ScoreOutcome score(const std::vector<int32_t>& values);
  grpc::Status create(const std::string& id, v1::Session* session = nullptr);
  grpc::Status get(const std::string& id, v1::Session* session = nullptr);
  grpc::Status remove(const std::string& id);
  int64_t sessions_free();
  // Makes a call with one request of raw bytes.
  RawOutcome call_raw(const std::string& method, const std::string& bytes);

  // Waits until this number of states is free, or fails the test.
  void expect_free(int64_t states);

  std::ostringstream log_text;
  EventLog log{"debug", false, log_text};
  Server server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Sessions::Stub> sessions;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

grpc::ByteBuffer bytes_of(const std::string& text);

// The invalid field that the status details name, or "".
std::string field_of(const grpc::Status& status);

// The value of a key in the trailing metadata.
std::string trailing_of(const grpc::ClientContext& context, const std::string& key);

// A request for `max_values` values after `prompt`.
v1::GenerateRequest generate_request(const std::vector<int32_t>& prompt, int64_t max_values,
                                     uint64_t seed = 1);
v1::ScoreRequest score_request(const std::vector<int32_t>& values);

}  // namespace runnel
