#include "server/rest/session_state.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/within_memory.h"
#include "server/calls/export_call.h"
#include "server/calls/import_call.h"
#include "server/calls/session_header.h"
#include "server/http/fault.h"
#include "server/http/header_text.h"
#include "server/http/live_answer.h"
#include "server/http/origin.h"
#include "server/http/request_fields.h"
#include "server/rest/session_json.h"

namespace runnel {
namespace {

constexpr const char* kFile = "application/octet-stream";
constexpr const char* kModel = "model";
constexpr const char* kAnyOwner = "any_owner";
constexpr const char* kExpiresIn = "expires_in";

// The fault of a call; `param` as it is, where it names one.
Fault fault_of(const Status& status, const std::string& param) {
  return param.empty() ? fault_of(status) : Fault{status, param};
}

// Without memory for what is to be sent the reply ends by itself.
template <typename Send>
void try_to(Send send) {
  static_cast<void>(within_memory([&] {
    send();
    return Status();
  }));
}

// What both have: the request's answer keeps itself until its call has finished, which another
// thread may make it do while the request is still read.
template <typename Answer>
class Kept {
 public:
  // Before the call is one of the live ones.
  void keep(std::shared_ptr<Answer> self) { self_ = std::move(self); }
  // Names what the request is refused for.
  void name(const char* param) {
    std::lock_guard lock(mutex_);
    param_ = param;
  }
  // The last that is asked of it.
  std::pair<std::shared_ptr<Answer>, std::string> let_go() {
    std::lock_guard lock(mutex_);
    return {std::move(self_), param_};
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Answer> self_;
  std::string param_;
};

class ExportAnswer final : public ExportSink, public std::enable_shared_from_this<ExportAnswer> {
 public:
  ExportAnswer(ServerContext& state, HttpReply reply) : state_(state), reply_(std::move(reply)) {}

  void start(const HttpRequest& request) {
    call_ = ExportCall::make(state_, origin_of("ExportSession", state_, request), *this);
    kept_.keep(shared_from_this());
    call_->enter();
    const Status status = within_memory([&] {
      reply_.on_gone([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->call_->cancel();
      });
      return submit(request);
    });
    if (!status.ok()) call_->refuse(status);
  }

 private:
  Status submit(const HttpRequest& request) {
    if (Status s = call_->admit(); !s.ok()) return s;
    auto model = state_.models.find(call_->caller(), query_of(request.target, kModel));
    if (!model.ok()) {
      kept_.name(kModel);
      return model.status();
    }
    ExportTerms terms;
    if (Status s = read_terms(request, terms); !s.ok()) return s;
    session_ = unescaped(request.part);
    call_->start(std::move(*model), session_, terms);
    return {};
  }

  // Reads the terms of the query; if one is wrong, names it.
  Status read_terms(const HttpRequest& request, ExportTerms& terms) {
    const std::string any_owner = query_of(request.target, kAnyOwner);
    if (any_owner != "" && any_owner != "true" && any_owner != "false") {
      kept_.name(kAnyOwner);
      return invalid_argument("any_owner must be true or false");
    }
    terms.any_owner = any_owner == "true";
    const auto seconds = query_number(request.target, kExpiresIn, 1, kMostExpiry.count());
    if (!seconds.ok()) {
      kept_.name(kExpiresIn);
      return seconds.status();
    }
    if (*seconds) terms.expires_in = std::chrono::seconds(**seconds);
    return {};
  }

  void write(std::string piece) override {
    if (!std::exchange(begun_, true)) {
      reply_.set_header(kSessionHeader, session_);
      reply_.begin(200, kFile);
    }
    state_.metrics.sent.add(std::ssize(piece));
    reply_.write(piece, [self = shared_from_this()](bool taken) { self->call_->written(taken); });
  }

  // A file that is cut off lacks its last chunk.
  void finish(const Status& status) override {
    const auto [self, param] = kept_.let_go();
    try_to([&, &param = param] {
      if (!begun_) return send_fault(fault_of(status, param), reply_);
      return status.ok() ? reply_.end() : reply_.abort();
    });
    call_->leave();
  }

  void cut_off() override {
    try_to([this] { reply_.abort(); });
  }

  ServerContext& state_;
  HttpReply reply_;
  std::string session_;
  bool begun_ = false;
  Kept<ExportAnswer> kept_;
  std::shared_ptr<ExportCall> call_;
};

class ImportAnswer final : public ImportSink, public std::enable_shared_from_this<ImportAnswer> {
 public:
  ImportAnswer(ServerContext& state, const HttpRequest& request, HttpReply reply)
      : state_(state),
        reply_(std::move(reply)),
        model_(query_of(request.target, kModel)),
        session_(unescaped(request.part)),
        allow_inexact_(query_of(request.target, "allow_inexact")) {}

  void start(const HttpRequest& request) {
    call_ = ImportCall::make(state_, origin_of("ImportSession", state_, request), *this);
    kept_.keep(shared_from_this());
    call_->enter();
    call_->start();
  }

 private:
  // The first message, as gRPC has it, is in the head of the request.
  void read() override {
    if (call_->opened() == nullptr) return deal([this] { return open(); });
    reply_.read([self = shared_from_this()](HttpPiece piece) {
      self->deal([&] { return piece.ok() ? self->take(*piece) : piece.status(); });
    });
  }

  // Has a message dealt with; what is not OK ends the call.
  template <typename With>
  void deal(With with) {
    if (!call_->arrived()) return;
    const Status status = within_memory(with);
    if (!status.ok()) return call_->refuse(status);
    if (!closed_) call_->go_on();
  }

  Status open() {
    if (allow_inexact_ != "" && allow_inexact_ != "true" && allow_inexact_ != "false") {
      kept_.name("allow_inexact");
      return invalid_argument("allow_inexact must be true or false");
    }
    auto model = state_.models.find(call_->caller(), model_);
    if (!model.ok()) {
      kept_.name(kModel);
      return model.status();
    }
    return call_->open(std::move(*model), session_, allow_inexact_ == "true");
  }

  Status take(std::string_view piece) {
    state_.metrics.received.add(std::ssize(piece));
    closed_ = piece.empty();
    if (!closed_) return call_->add(std::as_bytes(std::span(piece)));
    call_->close();
    return {};
  }

  void answer(const SessionInfo& session) override {
    reply_.set_header(kSessionHeader, session.key.id);
    text_ = json_text(session_json(session, *call_->opened())) + "\n";
  }

  void finish(const Status& status) override {
    const auto [self, param] = kept_.let_go();
    try_to([&, &param = param] {
      if (!status.ok()) return send_fault(fault_of_call(status, param), reply_);
      state_.metrics.sent.add(std::ssize(text_));
      reply_.send({200, "application/json", std::move(text_)}, live_answer(state_, nullptr));
    });
    call_->leave();
  }

  void cut_off() override {
    try_to([this] { reply_.abort(); });
  }

  // Before the end of the file ABORTED is that of a client who sends too slowly.
  Fault fault_of_call(const Status& status, const std::string& param) const {
    if (status.code() != Code::kAborted || closed_) return fault_of(status, param);
    return {Status(Code::kDeadlineExceeded, "the body took too long to come; send it sooner")};
  }

  ServerContext& state_;
  HttpReply reply_;
  const std::string model_, session_, allow_inexact_;
  bool closed_ = false;  // the file has ended
  std::string text_;     // of the answer
  Kept<ImportAnswer> kept_;
  std::shared_ptr<ImportCall> call_;
};

}  // namespace

HttpRoute export_route(ServerContext& state, const Gate& gate) {
  return {"GET", "/v1/sessions/*/state",
          gate.guard([&state](const HttpRequest& request, HttpReply reply) {
            std::make_shared<ExportAnswer>(state, std::move(reply))->start(request);
          })};
}

HttpRoute import_route(ServerContext& state, const Gate& gate) {
  const auto handle = [&state](const HttpRequest& request, HttpReply reply) {
    std::make_shared<ImportAnswer>(state, request, std::move(reply))->start(request);
  };
  return {"PUT", "/v1/sessions/*/state", gate.guard(kFile, handle), true};
}

}  // namespace runnel
