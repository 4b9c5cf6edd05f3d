#include "tests/cli/fake_server.h"

#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <numbers>
#include <thread>
#include <utility>

namespace runnel {
namespace {

// Each value has a probability of 1/2, which makes one bit. The value 7 has a probability of 1/4.
float fake_log_prob(int32_t value) { return (value == 7 ? -2 : -1) * std::numbers::ln2_v<float>; }

v1::ModelInfo common(const std::string& name) {
  v1::ModelInfo model;
  model.set_name(name);
  model.set_parameters(1234567);
  model.set_state_bytes(270336);
  model.set_sessions(256);
  model.set_sessions_free(255);
  model.set_backend("cpu");
  model.set_numerics("fake-1");
  model.set_weight_digest("00ff");
  return model;
}

}  // namespace

void wait_until_cancelled(const grpc::ServerContext& context) {
  while (!context.IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

v1::ModelInfo fake_image_model(const std::string& name) {
  v1::ModelInfo model = common(name);
  model.set_vocabulary(256);
  model.set_max_length(12);
  model.mutable_image()->set_height(4);
  model.mutable_image()->set_width(3);
  model.mutable_image()->set_channels(1);
  model.set_has_begin(true);
  model.set_head("mixture_of_logistics");
  return model;
}

v1::ModelInfo fake_symbol_model(const std::string& name) {
  v1::ModelInfo model = common(name);
  model.set_vocabulary(10);
  for (char c = 'a'; c <= 'j'; ++c) model.add_symbols(std::string(1, c));
  model.set_head("categorical");
  return model;
}

v1::ModelInfo fake_text_model(const std::string& name) {
  v1::ModelInfo model = common(name);
  model.set_vocabulary(256);
  model.set_has_text(true);
  model.set_head("categorical");
  return model;
}

std::string fake_text(int64_t position) { return position % 2 == 0 ? "" : "\u00e9\x1b "; }

int32_t fake_value(int sample, int64_t position, int64_t vocabulary) {
  return static_cast<int32_t>((sample * 31 + position * 5 + 2) % vocabulary);
}

FakeServer::FakeServer(std::vector<v1::ModelInfo> models) : models_(std::move(models)) {
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(static_cast<grpc::health::v1::Health::Service*>(this));
  builder.RegisterService(static_cast<v1::Inference::Service*>(this));
  builder.RegisterService(static_cast<v1::Models::Service*>(this));
  builder.RegisterService(static_cast<v1::Sessions::Service*>(this));
  builder.RegisterService(static_cast<v1::Admin::Service*>(this));
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() { server_->Shutdown(std::chrono::system_clock::now()); }

v1::GenerateRequest FakeServer::last_request() const {
  const std::vector<v1::GenerateRequest> all = requests();
  return all.empty() ? v1::GenerateRequest() : all.back();
}

std::vector<v1::GenerateRequest> FakeServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

size_t FakeServer::longest_text() const {
  const std::lock_guard lock(mutex_);
  return longest_text_;
}

std::string FakeServer::last_scored_text() const {
  const std::lock_guard lock(mutex_);
  return scored_text_;
}

const v1::ModelInfo& FakeServer::model(const std::string& name) const {
  const auto found = std::find_if(models_.begin(), models_.end(),
                                  [&](const auto& one) { return one.name() == name; });
  return found == models_.end() ? models_.front() : *found;
}

grpc::Status FakeServer::find_session(const std::string& id) const {
  if (std::ranges::find(sessions, id) != sessions.end()) return grpc::Status::OK;
  return {grpc::StatusCode::NOT_FOUND, "no session '" + id + "'"};
}

grpc::Status FakeServer::Check(grpc::ServerContext* /*context*/,
                               const grpc::health::v1::HealthCheckRequest* /*request*/,
                               grpc::health::v1::HealthCheckResponse* response) {
  if (before_health) before_health();
  response->set_status(serving_ ? grpc::health::v1::HealthCheckResponse::SERVING
                                : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListModels(grpc::ServerContext* /*context*/,
                                    const v1::ListModelsRequest* /*request*/,
                                    v1::ListModelsResponse* response) {
  for (const v1::ModelInfo& one : models_) *response->add_models() = one;
  return list_status;
}

grpc::Status FakeServer::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                  grpc::ServerWriter<v1::GenerateResponse>* writer) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(*request);
  }
  if (generate_instead) return generate_instead(context, writer);
  if (knows_sessions) {
    if (const auto found = find_session(request->origin().session()); !found.ok()) return found;
  }
  const v1::ModelInfo& info = model(request->model());
  v1::GenerateResponse event;
  event.mutable_started()->set_seed(request->sampling().has_seed() ? request->sampling().seed()
                                                                   : 42);
  event.mutable_started()->set_numerics(info.numerics());
  if (request->keep()) event.mutable_started()->set_session("kept-1");
  const int64_t start = request->origin().has_session() ? 5 : 0;
  event.mutable_started()->set_position(start);
  writer->Write(event);
  const int64_t first = start + request->values().values_size();
  int64_t end = info.max_length() > 0 ? info.max_length() : INT64_MAX;
  if (request->has_max_values()) end = std::min(end, first + request->max_values());
  for (int64_t position = first; position < end; ++position) {
    event.Clear();
    for (int sample = request->samples() - 1; sample >= 0; --sample) {
      v1::ValueRun& run = *event.mutable_values()->add_runs();
      run.set_sample(sample);
      run.set_position(position);
      run.add_values(fake_value(sample, position, info.vocabulary()));
      if (info.has_text()) run.set_text(fake_text(position));
      run.add_log_probs(position == 0 && info.has_begin() ? 0 : -std::numbers::ln2_v<float>);
      for (int i = 0; i < request->top_log_probs(); ++i) {
        if (i == 0) run.add_top_log_probs();
        run.mutable_top_log_probs(0)->add_top()->set_value(i);
      }
    }
    writer->Write(event);
  }
  for (int sample = 0; sample < request->samples(); ++sample) {
    event.Clear();
    event.mutable_finished()->set_sample(sample);
    event.mutable_finished()->set_reason(
        reason.value_or(request->has_max_values() ? v1::Finished::LENGTH : v1::Finished::END));
    v1::Usage& usage = *event.mutable_finished()->mutable_usage();
    usage.set_position(end);
    usage.set_prompt_values(request->values().values_size());
    usage.mutable_elapsed()->set_seconds(2);
    if (end > first) usage.mutable_first_value()->set_nanos(500'000'000);
    writer->Write(event);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::Score(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) {
  const int now = scores_.fetch_add(1) + 1;
  int most = most_scores_.load();
  while (most < now && !most_scores_.compare_exchange_weak(most, now)) {
  }
  const grpc::Status told = score_instead ? score_instead(context) : grpc::Status::OK;
  v1::ScoreRequest request;
  v1::ScoreTotal total;
  int64_t position = 0;
  while (told.ok() && stream->Read(&request)) {
    v1::ScoreResponse response;
    std::vector<int32_t> values(request.values().values().begin(), request.values().values().end());
    if (request.has_text()) {
      const std::lock_guard lock(mutex_);
      if (position == 0) scored_text_.clear();
      scored_text_ += request.text();
      longest_text_ = std::max(longest_text_, request.text().size());
      for (const char byte : request.text()) values.push_back(static_cast<unsigned char>(byte));
    }
    for (const int32_t value : values) {
      if (position++ == 0) continue;
      response.mutable_chunk()->add_log_probs(fake_log_prob(value));
      total.set_log_prob(total.log_prob() + fake_log_prob(value));
      total.set_values(total.values() + 1);
    }
    stream->Write(response);
  }
  if (told.ok()) {
    total.set_bits_per_dim(-total.log_prob() / (total.values() * std::numbers::ln2));
    total.set_numerics("fake-1");
    v1::ScoreResponse response;
    *response.mutable_total() = total;
    stream->Write(response);
  }
  scores_.fetch_sub(1);
  return told;
}

grpc::Status FakeServer::ListSessions(grpc::ServerContext* /*context*/,
                                      const v1::ListSessionsRequest* request,
                                      v1::ListSessionsResponse* response) {
  if (page_after) {
    response->set_next_page_token(page_after(request->page_token()));
    return grpc::Status::OK;
  }
  size_t index = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  for (int i = 0; i < 2 && index < sessions.size(); ++i, ++index) {
    v1::Session& session = *response->add_sessions();
    session.set_id(sessions[index]);
    session.set_model(request->model());
    session.set_position(1000 + static_cast<int64_t>(index));
    session.set_state(v1::Session::IDLE);
    session.mutable_idle()->set_seconds(7);
  }
  if (index < sessions.size()) response->set_next_page_token(std::to_string(index));
  return grpc::Status::OK;
}

grpc::Status FakeServer::CreateSession(grpc::ServerContext* context,
                                       const v1::CreateSessionRequest* request,
                                       v1::Session* session) {
  if (before_create) before_create(*context);
  const std::string id = request->id().empty() ? "s-1" : request->id();
  if (find_session(id).ok()) return {grpc::StatusCode::ALREADY_EXISTS, "'" + id + "' exists"};
  sessions.push_back(id);
  session->set_id(id);
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteSession(grpc::ServerContext* context,
                                       const v1::DeleteSessionRequest* request,
                                       v1::DeleteSessionResponse* /*response*/) {
  if (before_delete) before_delete(*context);
  const grpc::Status found = find_session(request->id());
  std::erase(sessions, request->id());
  return found;
}

grpc::Status FakeServer::GetSession(grpc::ServerContext* /*context*/,
                                    const v1::GetSessionRequest* request, v1::Session* session) {
  session->set_id(request->id());
  return find_session(request->id());
}

grpc::Status FakeServer::ForkSession(grpc::ServerContext* /*context*/,
                                     const v1::ForkSessionRequest* request,
                                     v1::ForkSessionResponse* response) {
  if (const auto found = find_session(request->id()); !found.ok()) return found;
  if (sessions.size() >= most_sessions) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "no state is free"};
  }
  const std::string child =
      request->children().empty() ? "fork-" + std::to_string(++forks_) : request->children(0);
  sessions.push_back(child);
  response->add_sessions()->set_id(child);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ExportSession(grpc::ServerContext* /*context*/,
                                       const v1::ExportSessionRequest* request,
                                       grpc::ServerWriter<v1::ExportSessionResponse>* writer) {
  v1::ExportSessionResponse response;
  response.set_data("the state of " + request->id());
  writer->Write(response);
  return find_session(request->id());
}

grpc::Status FakeServer::Reload(grpc::ServerContext* /*context*/,
                                const v1::ReloadRequest* /*request*/,
                                v1::ReloadResponse* response) {
  *response = reload_report;
  return grpc::Status::OK;
}

}  // namespace runnel
