#include "client/client.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "client/address.h"
#include "client/silence.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr Seconds kShortCall{10};
constexpr Seconds kRetry{2};               // more than the longest backoff and a handshake
constexpr milliseconds kProbe{500};        // to find out why no server answers
constexpr int64_t kScoreChunk = 4096;      // values of one message
constexpr size_t kImportPiece = 64 << 10;  // bytes of a state file in one message
constexpr int kMaxMessageBytes = 64 << 20;
constexpr const char* kPushback = "grpc-retry-pushback-ms";

grpc::ChannelArguments arguments_for(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // One client that waits for one server may ask often.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // A machine's own server is never behind a proxy.
  if (is_loopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

grpc::Status to_grpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), status.message()};
}

// How long the server asks to wait; 0 where it does not.
milliseconds pushback_of(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kPushback);
  if (found == metadata.end()) return milliseconds(0);
  int64_t ms = 0;
  const grpc::string_ref text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || end != text.data() + text.size()) return milliseconds(0);
  return milliseconds(std::clamp<int64_t>(ms, 1, 5000));
}

// Adds one message of the server to `scored`; false when it brings what it should not.
bool take_scores(const v1::ScoreResponse& response, size_t at_most, Scored& scored, bool& total) {
  if (total) return false;
  if (response.has_total()) {
    scored.total = response.total();
    total = true;
    return true;
  }
  const auto& log_probs = response.chunk().log_probs();
  scored.log_probs.insert(scored.log_probs.end(), log_probs.begin(), log_probs.end());
  return scored.log_probs.size() <= at_most;
}

using ScoreStream = grpc::ClientReaderWriter<v1::ScoreRequest, v1::ScoreResponse>;

// Text goes in one message, as each chunk becomes values by itself.
void write_sequence(const std::string& model, const Sequence& sequence, ScoreStream& stream) {
  v1::ScoreRequest request;
  request.set_model(model);
  if (sequence.begin) request.set_begin(*sequence.begin);
  if (!sequence.text.empty()) {
    request.set_text(sequence.text);
    stream.Write(request);
  }
  for (std::span<const int32_t> rest = sequence.values; !rest.empty();) {
    const auto chunk = rest.first(std::min<size_t>(rest.size(), kScoreChunk));
    rest = rest.subspan(chunk.size());
    request.mutable_values()->mutable_values()->Add(chunk.begin(), chunk.end());
    if (!stream.Write(request)) return;  // the call has failed: Finish() says why
    request.Clear();
  }
  stream.WritesDone();
}

// Scores that an answer can hold: text has no more values than bytes, but for a first one and a
// space that come before it.
size_t most_scores(const Sequence& sequence) {
  return sequence.text.empty() ? sequence.values.size() : sequence.text.size() + 2;
}

}  // namespace

google::protobuf::Duration wire_duration(double seconds) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(std::llround(seconds * 1e9));
}

// Known to the client while it lives, so that cancel() reaches it.
class Client::Call {
 public:
  Call(Client& client, system_clock::time_point until) : client_(client) {
    context_.set_deadline(until);
    std::lock_guard lock(client_.mutex_);
    if (client_.cancelled_) context_.TryCancel();
    client_.calls_.insert(&context_);
  }
  ~Call() {
    std::lock_guard lock(client_.mutex_);
    client_.calls_.erase(&context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  grpc::ClientContext& context() { return context_; }

 private:
  Client& client_;
  grpc::ClientContext context_;
};

Client::Client(Target target, Seconds timeout) : target_(std::move(target)), timeout_(timeout) {}

Client::~Client() = default;

system_clock::time_point Client::deadline(Seconds at_most) const {
  return system_clock::now() +
         std::chrono::duration_cast<system_clock::duration>(std::min(at_most, timeout_));
}

Status Client::open() {
  Result<Access> access = read_access(target_);
  if (!access.ok()) return access.status();
  access_ = std::move(*access);
  channel_ = open_channel(access_, arguments_for(access_.address));
  inference_ = v1::Inference::NewStub(channel_);
  models_ = v1::Models::NewStub(channel_);
  sessions_ = v1::Sessions::NewStub(channel_);
  admin_ = v1::Admin::NewStub(channel_);
  health_ = grpc::health::v1::Health::NewStub(channel_);
  return {};
}

grpc::Status Client::connect(Seconds at_most) {
  if (!channel_) {
    if (Status opened = open(); !opened.ok()) return to_grpc(opened);
  }
  grpc_connectivity_state state = channel_->GetState(true);
  // A channel that has failed says so until it is ready, and goes on only while somebody waits.
  const bool again = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
  const system_clock::time_point until = deadline(again ? std::min(at_most, kRetry) : at_most);
  while (state != GRPC_CHANNEL_READY && (again || state != GRPC_CHANNEL_TRANSIENT_FAILURE)) {
    // In pieces, so that an interrupt is heard.
    const auto piece = std::min(until, system_clock::now() + milliseconds(100));
    channel_->WaitForStateChange(state, piece);
    state = channel_->GetState(true);
    std::lock_guard lock(mutex_);
    if (cancelled_) return {grpc::StatusCode::CANCELLED, "interrupted while connecting"};
    if (system_clock::now() >= until) break;
  }
  if (state == GRPC_CHANNEL_READY) return grpc::Status::OK;
  const bool refused = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
  return to_grpc(explain_silence(access_, refused, std::min(at_most, timeout_), kProbe));
}

grpc::Status Client::list_models(v1::ListModelsResponse& models) {
  Call call(*this, deadline(kShortCall));
  return models_->ListModels(&call.context(), {}, &models);
}

grpc::Status Client::list_sessions(const v1::ListSessionsRequest& request,
                                   v1::ListSessionsResponse& sessions) {
  Call call(*this, deadline(kShortCall));
  return sessions_->ListSessions(&call.context(), request, &sessions);
}

grpc::Status Client::delete_session(const std::string& model, const std::string& id) {
  Call call(*this, deadline(kShortCall));
  v1::DeleteSessionRequest request;
  request.set_model(model);
  request.set_id(id);
  v1::DeleteSessionResponse response;
  return sessions_->DeleteSession(&call.context(), request, &response);
}

grpc::Status Client::rewind_session(const v1::RewindSessionRequest& request, v1::Session& session) {
  Call call(*this, deadline(timeout_));
  return sessions_->RewindSession(&call.context(), request, &session);
}

grpc::Status Client::fork_session(const v1::ForkSessionRequest& request,
                                  v1::ForkSessionResponse& made) {
  Call call(*this, deadline(timeout_));
  return sessions_->ForkSession(&call.context(), request, &made);
}

grpc::Status Client::export_session(const std::string& model, const std::string& id,
                                    int64_t at_most, std::string& file) {
  Call call(*this, deadline(timeout_));
  v1::ExportSessionRequest request;
  request.set_model(model);
  request.set_id(id);
  const auto reader = sessions_->ExportSession(&call.context(), request);
  v1::ExportSessionResponse response;
  while (reader->Read(&response)) {
    file += response.data();
    if (std::ssize(file) <= at_most) continue;
    call.context().TryCancel();
    reader->Finish();
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            "the server sends a state file of more than " + std::to_string(at_most) + " bytes"};
  }
  return reader->Finish();
}

grpc::Status Client::import_session(const v1::ImportTarget& target, std::string_view file,
                                    v1::Session& session) {
  Call call(*this, deadline(timeout_));
  const auto writer = sessions_->ImportSession(&call.context(), &session);
  v1::ImportSessionRequest request;
  *request.mutable_target() = target;
  bool going = writer->Write(request);
  for (; going && !file.empty(); file.remove_prefix(std::min(file.size(), kImportPiece))) {
    request.set_data(std::string(file.substr(0, kImportPiece)));
    going = writer->Write(request);
  }
  writer->WritesDone();
  return writer->Finish();
}

grpc::Status Client::check_health(grpc::health::v1::HealthCheckResponse& health) {
  Call call(*this, deadline(kShortCall));
  return health_->Check(&call.context(), {}, &health);
}

grpc::Status Client::reload(v1::ReloadResponse& report) {
  Call call(*this, deadline(timeout_));
  return admin_->Reload(&call.context(), {}, &report);
}

grpc::Status Client::generate(const v1::GenerateRequest& request, const OnEvent& on_event) {
  Call call(*this, deadline(timeout_));
  const auto reader = inference_->Generate(&call.context(), request);
  v1::GenerateResponse response;
  Status refused;
  while (refused.ok() && reader->Read(&response)) refused = on_event(response);
  if (!refused.ok()) {
    call.context().TryCancel();
    reader->Finish();
    return to_grpc(refused);
  }
  return reader->Finish();
}

grpc::Status Client::score(const std::string& model, const Sequence& sequence, Scored& scored) {
  const system_clock::time_point until = deadline(timeout_);
  while (true) {
    milliseconds pushback{0};
    grpc::Status status = score_once(model, sequence, until, scored, pushback);
    const bool full = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    if (!full || pushback == milliseconds(0) || system_clock::now() + pushback >= until) {
      return status;
    }
    if (!pause(pushback)) return {grpc::StatusCode::CANCELLED, "interrupted"};
  }
}

grpc::Status Client::score_once(const std::string& model, const Sequence& sequence,
                                system_clock::time_point until, Scored& scored,
                                milliseconds& pushback) {
  Call call(*this, until);
  scored = {};
  const auto stream = inference_->Score(&call.context());
  // A long sequence is written while its answers are read, so that neither side waits for the other
  // for ever.
  std::thread writer;
  if (sequence.values.size() > static_cast<size_t>(kScoreChunk)) {
    writer = std::thread([&] { write_sequence(model, sequence, *stream); });
  } else {
    write_sequence(model, sequence, *stream);
  }
  const size_t most = most_scores(sequence);
  v1::ScoreResponse response;
  bool total = false;
  bool sound = true;
  while (sound && stream->Read(&response)) sound = take_scores(response, most, scored, total);
  if (!sound) call.context().TryCancel();
  if (writer.joinable()) writer.join();
  grpc::Status status = stream->Finish();
  pushback = pushback_of(call.context());
  if (sound && (!status.ok() || total)) return status;
  return {grpc::StatusCode::INTERNAL,
          "the server's answer to Score is not of the form that it "
          "should have; is it another version of runnel?"};
}

bool Client::pause(milliseconds duration) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, duration, [&] { return cancelled_; });
}

void Client::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  wake_.notify_all();
}

const char* grpc_code_name(grpc::StatusCode code) {
  static constexpr std::array kNames = {"OK",
                                        "CANCELLED",
                                        "UNKNOWN",
                                        "INVALID_ARGUMENT",
                                        "DEADLINE_EXCEEDED",
                                        "NOT_FOUND",
                                        "ALREADY_EXISTS",
                                        "PERMISSION_DENIED",
                                        "RESOURCE_EXHAUSTED",
                                        "FAILED_PRECONDITION",
                                        "ABORTED",
                                        "OUT_OF_RANGE",
                                        "UNIMPLEMENTED",
                                        "INTERNAL",
                                        "UNAVAILABLE",
                                        "DATA_LOSS",
                                        "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

std::string call_error(const grpc::Status& status) {
  std::string line =
      std::string(grpc_code_name(status.error_code())) + ": " + status.error_message();
  const bool advised = line.find("--timeout") != std::string::npos;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !advised) {
    line += "; give it more time with --timeout";
  }
  // gRPC's own words, before the server has seen the message.
  if (status.error_message().starts_with("Received message larger than max")) {
    line += "; the second number is the server's limits.message_bytes: send less at once";
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    line += "; is it a runnel server of this version?";
  }
  return line;
}

}  // namespace runnel
