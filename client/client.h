// One server as the commands see it: a channel and the calls, each with a deadline, all of which
// one cancel() ends.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/access.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "runnel/v1/admin.grpc.pb.h"
#include "runnel/v1/inference.grpc.pb.h"
#include "runnel/v1/models.grpc.pb.h"
#include "runnel/v1/sessions.grpc.pb.h"

namespace runnel {

using Seconds = std::chrono::duration<double>;

// A time as messages have it, to the nanosecond.
google::protobuf::Duration wire_duration(double seconds);

// A fresh sequence to score: values, or text where there are none.
struct Sequence {
  std::vector<int32_t> values;
  std::string text;
  std::optional<bool> begin = {};  // after the model's first value; none: as the server does
};

// What a Score call came to.
struct Scored {
  std::vector<float> log_probs;  // natural log; a first value that is not predicted has none
  v1::ScoreTotal total;
};

class Client {
 public:
  // Nothing is connected yet, and no thread runs. `timeout` bounds each call of Generate,
  // Score and Reload.
  Client(Target target, Seconds timeout);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Waits until the server is reached, no longer than `at_most`. Errors say what to do:
  // - INVALID_ARGUMENT and NOT_FOUND for an address, a file or a key that cannot be used;
  // - UNAVAILABLE as soon as it is known that no server of gRPC answers;
  // - DEADLINE_EXCEEDED when the peer has not answered in time.
  grpc::Status connect(Seconds at_most);

  // Short calls: bounded by a few seconds, and by the timeout.
  grpc::Status list_models(v1::ListModelsResponse& models);
  grpc::Status list_sessions(const v1::ListSessionsRequest& request,
                             v1::ListSessionsResponse& sessions);
  grpc::Status delete_session(const std::string& model, const std::string& id);
  grpc::Status rewind_session(const v1::RewindSessionRequest& request, v1::Session& session);
  grpc::Status fork_session(const v1::ForkSessionRequest& request, v1::ForkSessionResponse& made);
  grpc::Status check_health(grpc::health::v1::HealthCheckResponse& health);

  // Has the server read its configuration again, and waits for what that comes to.
  grpc::Status reload(v1::ReloadResponse& report);

  // Hands every event to `on_event`; one that gives an error ends the call with it.
  using OnEvent = std::function<Status(const v1::GenerateResponse&)>;
  grpc::Status generate(const v1::GenerateRequest& request, const OnEvent& on_event);

  // A session's state file, of at most so many bytes.
  grpc::Status export_session(const std::string& model, const std::string& id, int64_t at_most,
                              std::string& file);
  // A session made of a state file.
  grpc::Status import_session(const v1::ImportTarget& target, std::string_view file,
                              v1::Session& session);

  // Scores one fresh sequence. Waits, within the timeout, while the server has no room and says
  // when to try again.
  grpc::Status score(const std::string& model, const Sequence& sequence, Scored& scored);

  // From any thread: ends the calls that run, and those that come, with CANCELLED.
  void cancel();

 private:
  class Call;  // a context that cancel() reaches
  std::chrono::system_clock::time_point deadline(Seconds at_most) const;
  grpc::Status score_once(const std::string& model, const Sequence& sequence,
                          std::chrono::system_clock::time_point until, Scored& scored,
                          std::chrono::milliseconds& pushback);
  Status open();                                   // makes the channel and the stubs
  bool pause(std::chrono::milliseconds duration);  // false: cancelled

  const Target target_;
  const Seconds timeout_;
  Access access_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Models::Stub> models_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<grpc::ClientContext*> calls_;
  bool cancelled_ = false;
};

// The name of a gRPC status code: "INVALID_ARGUMENT".
const char* grpc_code_name(grpc::StatusCode code);

// A failed call on one line: the code's name, the server's message, and what to do where that is
// known.
std::string call_error(const grpc::Status& status);

}  // namespace runnel
