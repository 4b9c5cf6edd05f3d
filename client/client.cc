#include "client/client.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/utf8.h"
#include "client/address.h"
#include "client/channel.h"
#include "client/silence.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "runnel/v1/admin.grpc.pb.h"
#include "runnel/v1/fault.pb.h"
#include "runnel/v1/inference.grpc.pb.h"
#include "runnel/v1/models.grpc.pb.h"
#include "runnel/v1/sessions.grpc.pb.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr Seconds kShortCall{10};
constexpr Seconds kRetry{2};  // more than the longest backoff and a handshake
// The least and the most time to find out why no server answers.
constexpr milliseconds kShortProbe{1000}, kProbe{5000};
constexpr int64_t kScoreChunk = 4096;      // values in one message
constexpr size_t kScoreText = 64 << 10;    // bytes of text in one message
constexpr size_t kImportPiece = 64 << 10;  // bytes of a state file in one message
constexpr int kMaxMessageBytes = 64 << 20;
constexpr const char* kPushback = "grpc-retry-pushback-ms";

grpc::ChannelArguments arguments_for(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A single client that waits for a single server may retry often.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // A server on this machine is never reached through a proxy.
  if (is_loopback(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// The message with markers around the names of fields if the server sends it in that form;
// otherwise the plain message.
std::string message_of(const grpc::Status& status) {
  v1::StatusDetails details;
  v1::Fault fault;
  const bool has_fault = details.ParseFromString(status.error_details()) &&
                         details.details_size() == 1 && details.details(0).UnpackTo(&fault);
  const bool agrees = has_fault && rendered(fault.message()) == status.error_message();
  return agrees ? fault.message() : status.error_message();
}

// The codes have the same numbers in both enums.
Status status_of(const grpc::Status& status) {
  return {static_cast<Code>(status.error_code()), message_of(status)};
}

// The time to wait that the server asks for; 0 if it asks for none.
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

// Adds one message of the server to `scored`. Returns false if the message has more than it may.
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

void write_sequence(const std::string& model, const Sequence& sequence, ScoreStream& stream) {
  v1::ScoreRequest request;
  request.set_model(model);
  if (sequence.begin) request.set_begin(*sequence.begin);
  for (std::string_view rest = sequence.text; !rest.empty();) {
    const std::string_view piece = piece_of(rest, kScoreText);
    rest.remove_prefix(piece.size());
    request.set_text(std::string(piece));
    if (!stream.Write(request)) return;  // the call has failed: Finish() says why
    request.Clear();
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

// The maximum number of scores in an answer. Text has at most one value per byte, plus a first
// value and one for a space before each piece. A piece is at least half as long as it may be.
size_t most_scores(const Sequence& sequence) {
  const size_t bytes = sequence.text.size();
  return bytes == 0 ? sequence.values.size() : bytes + 2 + bytes / (kScoreText / 2);
}

}  // namespace

std::string_view piece_of(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  const size_t least = most / 2;
  for (size_t end = most; end > least; --end) {
    if (text[end - 1] == '\n' && !is_space(text[end])) return text.substr(0, end);
  }
  for (size_t end = most; end > least; --end) {
    if (text[end] == ' ' && !is_space(text[end - 1])) return text.substr(0, end);
  }
  return text.substr(0, valid_utf8_prefix(text.substr(0, most)));
}

google::protobuf::Duration wire_duration(double seconds) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(std::llround(seconds * 1e9));
}

// The channel, its stubs, and the calls that run on them.
class Client::Wire {
 public:
  class Call;

  Wire(Target target, Seconds timeout) : timeout(timeout), target_(std::move(target)) {}

  Status open();
  Status connect(Seconds at_most);
  void cancel(bool future_calls);
  bool is_cancelled();
  bool pause(milliseconds duration);  // false: cancelled
  system_clock::time_point deadline(Seconds at_most) const {
    return system_clock::now() +
           std::chrono::duration_cast<system_clock::duration>(std::min(at_most, timeout));
  }
  Status score_once(const std::string& model, const Sequence& sequence,
                    system_clock::time_point until, Scored& scored, milliseconds& pushback,
                    const OnScored& on_scored);

  const Seconds timeout;
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Sessions::Stub> sessions;
  std::unique_ptr<v1::Admin::Stub> admin;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;

 private:
  const Target target_;
  Access access_;
  std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<grpc::ClientContext*> calls_;
  bool cancelled_ = false;
};

// The context of one call. While it lives, cancel() reaches it.
class Client::Wire::Call {
 public:
  Call(Wire& wire, Seconds at_most) : Call(wire, wire.deadline(at_most)) {}
  Call(Wire& wire, system_clock::time_point until) : wire_(wire) {
    context_.set_deadline(until);
    std::lock_guard lock(wire_.mutex_);
    if (wire_.cancelled_) context_.TryCancel();
    wire_.calls_.insert(&context_);
  }
  ~Call() {
    std::lock_guard lock(wire_.mutex_);
    wire_.calls_.erase(&context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  grpc::ClientContext* context() { return &context_; }

 private:
  Wire& wire_;
  grpc::ClientContext context_;
};

// Makes the channel and the stubs.
Status Client::Wire::open() {
  if (channel_) return {};
  Result<Access> access = read_access(target_);
  if (!access.ok()) return access.status();
  access_ = std::move(*access);
  channel_ = open_channel(access_, arguments_for(access_.address));
  inference = v1::Inference::NewStub(channel_);
  models = v1::Models::NewStub(channel_);
  sessions = v1::Sessions::NewStub(channel_);
  admin = v1::Admin::NewStub(channel_);
  health = grpc::health::v1::Health::NewStub(channel_);
  return {};
}

Status Client::Wire::connect(Seconds at_most) {
  if (Status opened = open(); !opened.ok()) return opened;
  grpc_connectivity_state state = channel_->GetState(true);
  // A failed channel reports the failure until it is ready, and reconnects only while somebody
  // waits.
  const bool again = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
  const system_clock::time_point until = deadline(again ? std::min(at_most, kRetry) : at_most);
  while (state != GRPC_CHANNEL_READY && (again || state != GRPC_CHANNEL_TRANSIENT_FAILURE)) {
    // Waits in short pieces, so that an interrupt is noticed.
    const auto piece = std::min(until, system_clock::now() + milliseconds(100));
    channel_->WaitForStateChange(state, piece);
    state = channel_->GetState(true);
    if (is_cancelled()) return {Code::kCancelled, "interrupted while connecting"};
    if (system_clock::now() >= until) break;
  }
  if (state == GRPC_CHANNEL_READY) return {};
  const bool refused = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
  const Seconds tried = std::min(at_most, timeout);
  const auto probe =
      std::chrono::ceil<milliseconds>(std::clamp<Seconds>(tried, kShortProbe, kProbe));
  return explain_silence(access_, refused, tried, probe, [this] { return is_cancelled(); });
}

Client::Client(Target target, Seconds timeout)
    : wire_(std::make_unique<Wire>(std::move(target), timeout)) {}

Client::~Client() = default;

Status Client::open() { return wire_->open(); }

Status Client::connect(Seconds at_most) { return wire_->connect(at_most); }

void Client::cancel() { wire_->cancel(true); }

void Client::cancel_calls() { wire_->cancel(false); }

Status Client::list_models(v1::ListModelsResponse& models) {
  Wire::Call call(*wire_, kShortCall);
  return status_of(wire_->models->ListModels(call.context(), {}, &models));
}

Status Client::list_sessions(const v1::ListSessionsRequest& request,
                             v1::ListSessionsResponse& sessions) {
  Wire::Call call(*wire_, kShortCall);
  return status_of(wire_->sessions->ListSessions(call.context(), request, &sessions));
}

Status Client::create_session(const std::string& model, const std::string& id,
                              v1::Session& session) {
  Wire::Call call(*wire_, kShortCall);
  v1::CreateSessionRequest request;
  request.set_model(model);
  request.set_id(id);
  return status_of(wire_->sessions->CreateSession(call.context(), request, &session));
}

Status Client::get_session(const std::string& model, const std::string& id, v1::Session& session) {
  Wire::Call call(*wire_, kShortCall);
  v1::GetSessionRequest request;
  request.set_model(model);
  request.set_id(id);
  return status_of(wire_->sessions->GetSession(call.context(), request, &session));
}

Status Client::delete_session(const std::string& model, const std::string& id) {
  Wire::Call call(*wire_, kShortCall);
  v1::DeleteSessionRequest request;
  request.set_model(model);
  request.set_id(id);
  v1::DeleteSessionResponse response;
  return status_of(wire_->sessions->DeleteSession(call.context(), request, &response));
}

Status Client::rewind_session(const v1::RewindSessionRequest& request, v1::Session& session) {
  Wire::Call call(*wire_, wire_->timeout);
  return status_of(wire_->sessions->RewindSession(call.context(), request, &session));
}

Status Client::fork_session(const v1::ForkSessionRequest& request, v1::ForkSessionResponse& made) {
  Wire::Call call(*wire_, wire_->timeout);
  return status_of(wire_->sessions->ForkSession(call.context(), request, &made));
}

Status Client::export_session(const v1::ExportSessionRequest& request, int64_t at_most,
                              std::string& file) {
  Wire::Call call(*wire_, wire_->timeout);
  const auto reader = wire_->sessions->ExportSession(call.context(), request);
  v1::ExportSessionResponse response;
  while (reader->Read(&response)) {
    file += response.data();
    if (std::ssize(file) <= at_most) continue;
    call.context()->TryCancel();
    reader->Finish();
    return {Code::kResourceExhausted,
            "the server sends a state file of more than " + std::to_string(at_most) + " bytes"};
  }
  return status_of(reader->Finish());
}

Status Client::import_session(const v1::ImportTarget& target, std::string_view file,
                              v1::Session& session) {
  Wire::Call call(*wire_, wire_->timeout);
  const auto writer = wire_->sessions->ImportSession(call.context(), &session);
  v1::ImportSessionRequest request;
  *request.mutable_target() = target;
  bool going = writer->Write(request);
  for (; going && !file.empty(); file.remove_prefix(std::min(file.size(), kImportPiece))) {
    request.set_data(std::string(file.substr(0, kImportPiece)));
    going = writer->Write(request);
  }
  writer->WritesDone();
  return status_of(writer->Finish());
}

Status Client::check_health(grpc::health::v1::HealthCheckResponse& health) {
  Wire::Call call(*wire_, kShortCall);
  return status_of(wire_->health->Check(call.context(), {}, &health));
}

Status Client::reload(v1::ReloadResponse& report) {
  Wire::Call call(*wire_, wire_->timeout);
  return status_of(wire_->admin->Reload(call.context(), {}, &report));
}

Status Client::generate(const v1::GenerateRequest& request, const OnEvent& on_event) {
  Wire::Call call(*wire_, wire_->timeout);
  const auto reader = wire_->inference->Generate(call.context(), request);
  v1::GenerateResponse response;
  Status refused;
  while (refused.ok() && reader->Read(&response)) refused = on_event(response);
  if (!refused.ok()) {
    call.context()->TryCancel();
    reader->Finish();
    return refused;
  }
  return status_of(reader->Finish());
}

Status Client::score(const std::string& model, const Sequence& sequence, Scored& scored,
                     const OnScored& on_scored) {
  const system_clock::time_point until = wire_->deadline(wire_->timeout);
  while (true) {
    milliseconds pushback{0};
    Status status = wire_->score_once(model, sequence, until, scored, pushback, on_scored);
    const bool full = status.code() == Code::kResourceExhausted;
    if (!full || pushback == milliseconds(0) || system_clock::now() + pushback >= until) {
      return status;
    }
    if (!wire_->pause(pushback)) return {Code::kCancelled, "interrupted"};
  }
}

Status Client::Wire::score_once(const std::string& model, const Sequence& sequence,
                                system_clock::time_point until, Scored& scored,
                                milliseconds& pushback, const OnScored& on_scored) {
  Call call(*this, until);
  scored = {};
  const auto stream = inference->Score(call.context());
  // A long sequence is written while its answers are read, so that neither side blocks the other
  // forever.
  std::thread writer;
  if (sequence.values.size() > static_cast<size_t>(kScoreChunk) ||
      sequence.text.size() > kScoreText) {
    writer = std::thread([&] { write_sequence(model, sequence, *stream); });
  } else {
    write_sequence(model, sequence, *stream);
  }
  const size_t most = most_scores(sequence);
  v1::ScoreResponse response;
  bool total = false;
  bool sound = true;
  size_t pieces = 0;  // pieces of the text that are scored
  while (sound && stream->Read(&response)) {
    sound = take_scores(response, most, scored, total);
    pieces += response.has_total() ? 0 : 1;
    const size_t done = sequence.text.empty() ? scored.log_probs.size()
                                              : std::min(sequence.text.size(), pieces * kScoreText);
    if (on_scored) on_scored(static_cast<int64_t>(done));
  }
  if (!sound) call.context()->TryCancel();
  if (writer.joinable()) writer.join();
  Status status = status_of(stream->Finish());
  pushback = pushback_of(*call.context());
  if (sound && (!status.ok() || total)) return status;
  return {Code::kInternal,
          "the server's answer to Score is not of the form that it "
          "should have; is it another version of runnel?"};
}

bool Client::Wire::pause(milliseconds duration) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, duration, [&] { return cancelled_; });
}

bool Client::Wire::is_cancelled() {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

void Client::Wire::cancel(bool future_calls) {
  std::lock_guard lock(mutex_);
  cancelled_ = cancelled_ || future_calls;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  wake_.notify_all();
}

std::string call_error(const Status& status) {
  std::string line = status.to_string();
  const bool advised = line.find("--timeout") != std::string::npos;
  if (status.code() == Code::kDeadlineExceeded && !advised) {
    line += "; give it more time with --timeout";
  }
  // gRPC's own message, sent before the server has seen the request.
  if (status.message().starts_with("Received message larger than max")) {
    line += "; the second number is the server's limits.message_bytes: send less at once";
  }
  if (status.code() == Code::kUnauthenticated) line += "; give a key with --api-key-file FILE";
  if (status.code() == Code::kUnimplemented) {
    line += "; is it a runnel server of this version?";
  }
  return line;
}

}  // namespace runnel
