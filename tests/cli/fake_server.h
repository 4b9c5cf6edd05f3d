// A server in the test's own process that answers as a test tells it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/console.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "runnel/v1/admin.grpc.pb.h"
#include "runnel/v1/inference.grpc.pb.h"
#include "runnel/v1/models.grpc.pb.h"
#include "runnel/v1/sessions.grpc.pb.h"

namespace runnel {

// A model of 4 x 3 grey images with the begin value 0.
v1::ModelInfo fake_image_model(const std::string& name);
// A model with the symbols "a" to "j" and no last position.
v1::ModelInfo fake_symbol_model(const std::string& name);

// A model of text bytes without a last position.
v1::ModelInfo fake_text_model(const std::string& name);

// The text of the value at a position. Two values make a character.
std::string fake_text(int64_t position);

// The value that the fake server samples.
int32_t fake_value(int sample, int64_t position, int64_t vocabulary);

// Returns after the client has cancelled the call or is gone. It polls every few milliseconds,
// because gRPC does not notify a method that may block.
void wait_until_cancelled(const grpc::ServerContext& context);

class FakeServer final : public grpc::health::v1::Health::Service,
                         public v1::Inference::Service,
                         public v1::Models::Service,
                         public v1::Sessions::Service,
                         public v1::Admin::Service {
 public:
  explicit FakeServer(std::vector<v1::ModelInfo> models);
  ~FakeServer() override;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void set_serving(bool serving) { serving_ = serving; }

  // Run instead of Generate and Score; set before the call.
  std::function<grpc::Status(grpc::ServerContext*, grpc::ServerWriter<v1::GenerateResponse>*)>
      generate_instead;
  std::function<grpc::Status(grpc::ServerContext*)> score_instead;
  // Run before each answer of CreateSession and DeleteSession; set before the call.
  std::function<void(const grpc::ServerContext&)> before_create, before_delete;
  std::function<void()> before_health;  // runs before each answer of Check; set before the call
  std::optional<v1::Finished::Reason> reason;  // of Generate; if not set, LENGTH or END
  grpc::Status list_status = grpc::Status::OK;
  std::vector<std::string> sessions;  // their names; set before the call
  // Returns the token of the page after the page of a token. If it is set, the pages have no
  // sessions. Set before the call.
  std::function<std::string(const std::string& token)> page_after;
  bool knows_sessions = false;       // if true, Generate on an unknown one is NOT_FOUND
  size_t most_sessions = 100;        // a fork that exceeds it is RESOURCE_EXHAUSTED
  v1::ReloadResponse reload_report;  // of Reload; set before the call

  v1::GenerateRequest last_request() const;
  std::vector<v1::GenerateRequest> requests() const;  // all, in the order of arrival
  std::string last_scored_text() const;               // all its pieces, joined
  size_t longest_text() const;                        // in bytes, of the pieces that were scored
  int most_scores_at_once() const { return most_scores_.load(); }

  grpc::Status Check(grpc::ServerContext* context,
                     const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  grpc::Status Score(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) override;
  // Uses pages of two.
  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override;
  grpc::Status CreateSession(grpc::ServerContext* context, const v1::CreateSessionRequest* request,
                             v1::Session* session) override;
  grpc::Status DeleteSession(grpc::ServerContext* context, const v1::DeleteSessionRequest* request,
                             v1::DeleteSessionResponse* response) override;
  grpc::Status GetSession(grpc::ServerContext* context, const v1::GetSessionRequest* request,
                          v1::Session* session) override;
  // Names nameless forks "fork-1", then "fork-2".
  grpc::Status ForkSession(grpc::ServerContext* context, const v1::ForkSessionRequest* request,
                           v1::ForkSessionResponse* response) override;
  // Sends "the state of ID".
  grpc::Status ExportSession(grpc::ServerContext* context, const v1::ExportSessionRequest* request,
                             grpc::ServerWriter<v1::ExportSessionResponse>* writer) override;
  grpc::Status Reload(grpc::ServerContext* context, const v1::ReloadRequest* request,
                      v1::ReloadResponse* response) override;

 private:
  const v1::ModelInfo& model(const std::string& name) const;
  grpc::Status find_session(const std::string& id) const;  // NOT_FOUND if it does not exist

  const std::vector<v1::ModelInfo> models_;
  mutable std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
  std::string scored_text_;
  size_t longest_text_ = 0;
  std::atomic<int> scores_{0}, most_scores_{0};
  std::atomic<bool> serving_{true};
  int port_ = 0, forks_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Text that a test watches while a command writes it.
class WatchedText final : public std::stringbuf {
 public:
  // Waits until the flushed text contains `part`. False after two minutes.
  bool comes_to_have(const std::string& part) {
    std::unique_lock lock(mutex_);
    return flushed_.wait_for(lock, std::chrono::minutes(2),
                             [&] { return text_.find(part) != std::string::npos; });
  }

 protected:
  int sync() override {
    const std::lock_guard lock(mutex_);
    text_ = str();
    flushed_.notify_all();
    return 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable flushed_;
  std::string text_;  // as of the last flush
};

// A console that keeps the text written to it. It blocks signals before any thread starts, like the
// program does.
class CapturedConsole {
 public:
  CapturedConsole() : console_{.out = out_, .err = err_} {
    sigset_t set{};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
  Console& console() { return console_; }
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

 private:
  std::ostringstream out_, err_;
  Console console_;
};

}  // namespace runnel
