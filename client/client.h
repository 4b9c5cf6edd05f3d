// A client of one server, for the commands: it holds the channel and makes the calls. Each call has
// a deadline, and cancel() ends all of them.
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

// Seconds as the Duration message of protobuf, rounded to a nanosecond.
google::protobuf::Duration wire_duration(double seconds);

// A new sequence to score: `values`, or `text` if there are no values.
struct Sequence {
  std::vector<int32_t> values;
  std::string text;
  // Whether the model's first value comes first. None: the server's default.
  std::optional<bool> begin = {};
};

// The first piece of a text: at most `most` bytes, without splitting a character. It ends after a
// line if possible, otherwise before a space, so that the piece has the same values as in the whole
// text.
std::string_view piece_of(std::string_view text, size_t most);

// The result of a Score call.
struct Scored {
  std::vector<float>
      log_probs;  // natural log; none for a first value that the model does not predict
  v1::ScoreTotal total;
};

class Client {
 public:
  // Does not connect yet, and starts no thread. `timeout` bounds each call of Generate, Score and
  // Reload.
  Client(Target target, Seconds timeout);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Reads the files that the target names. The first call of connect() does so, too, if this has
  // not been called. INVALID_ARGUMENT and NOT_FOUND for an address, a file or a key that cannot be
  // used.
  Status open();
  // Connects, and waits for at most `at_most`. If nobody answers, it may then take as long again,
  // but 1 to 5 s, to find out why. Errors say what to do:
  // - the errors of open();
  // - UNAVAILABLE as soon as it is known that no gRPC server answers;
  // - DEADLINE_EXCEEDED if the peer has not answered in time.
  Status connect(Seconds at_most);

  // Short calls. Each may take a few seconds, and no longer than the timeout.
  Status list_models(v1::ListModelsResponse& models);
  Status list_sessions(const v1::ListSessionsRequest& request, v1::ListSessionsResponse& sessions);
  // With an empty `id` the server chooses one.
  Status create_session(const std::string& model, const std::string& id, v1::Session& session);
  Status get_session(const std::string& model, const std::string& id, v1::Session& session);
  Status delete_session(const std::string& model, const std::string& id);
  Status rewind_session(const v1::RewindSessionRequest& request, v1::Session& session);
  Status fork_session(const v1::ForkSessionRequest& request, v1::ForkSessionResponse& made);
  Status check_health(grpc::health::v1::HealthCheckResponse& health);

  // Makes the server read its configuration again, and waits for the report of the outcome.
  Status reload(v1::ReloadResponse& report);

  // Passes every event to `on_event`. If `on_event` returns an error, the call ends with this
  // error.
  using OnEvent = std::function<Status(const v1::GenerateResponse&)>;
  Status generate(const v1::GenerateRequest& request, const OnEvent& on_event);

  // Gets a session's state file, of at most `at_most` bytes.
  Status export_session(const v1::ExportSessionRequest& request, int64_t at_most,
                        std::string& file);
  // Makes a session from a state file.
  Status import_session(const v1::ImportTarget& target, std::string_view file,
                        v1::Session& session);

  // Scores one new sequence, which is sent in pieces. If the server has no room and says when to
  // retry, it waits and retries within the timeout. `on_scored` gets the progress: the number of
  // scored values or, for a text, about the number of scored bytes.
  using OnScored = std::function<void(int64_t done)>;
  Status score(const std::string& model, const Sequence& sequence, Scored& scored,
               const OnScored& on_scored = {});

  // Any thread may call this. Ends running and future calls with CANCELLED.
  void cancel();
  // Ends only the running calls with CANCELLED.
  void cancel_calls();

 private:
  class Wire;  // the channel and the running calls
  std::unique_ptr<Wire> wire_;
};

// A failed call on one line: the code's name, the server's message, and advice if there is any.
std::string call_error(const Status& status);

}  // namespace runnel
