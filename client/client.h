// One server as the commands see it: a channel and the calls, each with a deadline, all of which
// one cancel() ends.
#pragma once

#include <google/protobuf/duration.pb.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/access.h"
#include "grpc/health/v1/health.pb.h"
#include "runnel/v1/admin.pb.h"
#include "runnel/v1/inference.pb.h"
#include "runnel/v1/models.pb.h"
#include "runnel/v1/sessions.pb.h"

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

// The first piece of a text: at most `most` bytes, whole characters. It ends after a line where it
// can, otherwise before a space, so that its values are those of the whole text.
std::string_view piece_of(std::string_view text, size_t most);

// The result of a Score call.
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
  Status connect(Seconds at_most);

  // Short calls: bounded by a few seconds, and by the timeout.
  Status list_models(v1::ListModelsResponse& models);
  Status list_sessions(const v1::ListSessionsRequest& request, v1::ListSessionsResponse& sessions);
  // With an empty `id` the server chooses one.
  Status create_session(const std::string& model, const std::string& id, v1::Session& session);
  Status get_session(const std::string& model, const std::string& id, v1::Session& session);
  Status delete_session(const std::string& model, const std::string& id);
  Status rewind_session(const v1::RewindSessionRequest& request, v1::Session& session);
  Status fork_session(const v1::ForkSessionRequest& request, v1::ForkSessionResponse& made);
  Status check_health(grpc::health::v1::HealthCheckResponse& health);

  // Has the server read its configuration again, and waits for what that comes to.
  Status reload(v1::ReloadResponse& report);

  // Hands every event to `on_event`; one that gives an error ends the call with it.
  using OnEvent = std::function<Status(const v1::GenerateResponse&)>;
  Status generate(const v1::GenerateRequest& request, const OnEvent& on_event);

  // A session's state file, of at most `at_most` bytes.
  Status export_session(const v1::ExportSessionRequest& request, int64_t at_most,
                        std::string& file);
  // A session made of a state file.
  Status import_session(const v1::ImportTarget& target, std::string_view file,
                        v1::Session& session);

  // Scores one fresh sequence, sent in pieces. Waits, within the timeout, while the server has no
  // room and says when to try again. `on_scored` hears how much has been scored: values, or about
  // as many bytes where the sequence is a text.
  using OnScored = std::function<void(int64_t done)>;
  Status score(const std::string& model, const Sequence& sequence, Scored& scored,
               const OnScored& on_scored = {});

  // From any thread: ends running and future calls with CANCELLED.
  void cancel();
  // The same for running calls alone.
  void cancel_calls();

 private:
  class Wire;  // the channel and the calls that run
  std::unique_ptr<Wire> wire_;
};

// A failed call on one line: the code's name, the server's message, and what to do where that is
// known.
std::string call_error(const Status& status);

}  // namespace runnel
