#include "server/rest/session_state.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/fields.h"
#include "base/within_memory.h"
#include "server/calls/export_call.h"
#include "server/calls/import_call.h"
#include "server/calls/session_header.h"
#include "server/http/call_start.h"
#include "server/http/fault.h"
#include "server/http/header_text.h"
#include "server/http/live_answer.h"
#include "server/http/request_fields.h"
#include "server/rest/session_json.h"
#include "server/rest/words.h"

namespace runnel {
namespace {

constexpr const char* kFile = "application/octet-stream";

// The value of a field in the query.
std::string query_field(const HttpRequest& request, std::string_view field) {
  return query_of(request.target, rest_word(field));
}

// Parses a boolean; an empty text is false. INVALID_ARGUMENT if the text is anything other than
// "true" or "false".
Result<bool> boolean_of(const std::string& text, std::string_view field) {
  if (text.empty() || text == "true" || text == "false") return text == "true";
  return invalid_argument(place_of(field) + " must be true or false");
}

// Calls `send`. If there is no memory for the bytes to send, the reply ends by itself.
template <typename Send>
void try_to(Send send) {
  static_cast<void>(within_memory([&] {
    send();
    return Status();
  }));
}

class ExportAnswer final : public ExportSink, public std::enable_shared_from_this<ExportAnswer> {
 public:
  ExportAnswer(ServerContext& state, HttpReply reply) : state_(state), reply_(std::move(reply)) {}

  void start(const HttpRequest& request) {
    call_ = ExportCall::make(state_, call_start("ExportSession", state_, request), *this);
    self_ = shared_from_this();
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
    auto model = call_->find_model(query_field(request, fields::kModel));
    if (!model.ok()) return model.status();
    ExportTerms terms;
    if (Status s = read_terms(request, terms); !s.ok()) return s;
    session_ = unescaped(request.part);
    call_->start(std::move(*model), session_, terms);
    return {};
  }

  // Reads the terms from the query.
  static Status read_terms(const HttpRequest& request, ExportTerms& terms) {
    const auto any_owner = boolean_of(query_field(request, fields::kAnyOwner), fields::kAnyOwner);
    if (!any_owner.ok()) return any_owner.status();
    terms.any_owner = *any_owner;
    const auto seconds =
        query_number(request.target, rest_word(fields::kExpiresIn), 1, kMostExpiry.count());
    if (!seconds.ok()) {
      Status wrong = seconds.status();
      return wrong.at_field(fields::kExpiresIn);
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

  // A file that was cut off lacks its last chunk.
  void finish(const Status& status) override {
    const auto self = std::move(self_);
    try_to([&] {
      if (!begun_) return send_fault(rest_fault(status), reply_);
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
  std::shared_ptr<ExportAnswer> self_;  // until the call has finished
  std::shared_ptr<ExportCall> call_;
};

class ImportAnswer final : public ImportSink, public std::enable_shared_from_this<ImportAnswer> {
 public:
  ImportAnswer(ServerContext& state, const HttpRequest& request, HttpReply reply)
      : state_(state),
        reply_(std::move(reply)),
        model_(query_field(request, fields::kModel)),
        session_(unescaped(request.part)),
        allow_inexact_(query_field(request, fields::kAllowInexact)) {}

  void start(const HttpRequest& request) {
    call_ = ImportCall::make(state_, call_start("ImportSession", state_, request), *this);
    self_ = shared_from_this();
    call_->enter();
    call_->start();
  }

 private:
  // The head of the request has the fields of gRPC's first message.
  void read() override {
    if (call_->opened() == nullptr) return deal([this] { return open(); });
    reply_.read([self = shared_from_this()](HttpPiece piece) {
      self->deal([&] { return piece.ok() ? self->take(*piece) : piece.status(); });
    });
  }

  // Handles a message. If that fails, the call ends.
  template <typename With>
  void deal(With with) {
    if (!call_->arrived()) return;
    const Status status = within_memory(with);
    if (!status.ok()) return call_->refuse(status);
    if (!closed_) call_->go_on();
  }

  Status open() {
    const auto allow_inexact = boolean_of(allow_inexact_, fields::kAllowInexact);
    if (!allow_inexact.ok()) return allow_inexact.status();
    auto model = call_->find_model(model_);
    if (!model.ok()) return model.status();
    return call_->open(std::move(*model), session_, *allow_inexact);
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
    const auto self = std::move(self_);
    try_to([&] {
      if (!status.ok()) return send_fault(fault_of_call(status), reply_);
      state_.metrics.sent.add(std::ssize(text_));
      reply_.send({200, "application/json", std::move(text_)}, live_answer(state_, nullptr));
    });
    call_->leave();
  }

  void cut_off() override {
    try_to([this] { reply_.abort(); });
  }

  // ABORTED before the end of the file means that the client sends too slowly.
  Fault fault_of_call(const Status& status) const {
    if (status.code() != Code::kAborted || closed_) return rest_fault(status);
    return {Status(Code::kDeadlineExceeded, "the body took too long to come; send it sooner")};
  }

  ServerContext& state_;
  HttpReply reply_;
  const std::string model_, session_, allow_inexact_;
  bool closed_ = false;                 // the file has ended
  std::string text_;                    // of the answer
  std::shared_ptr<ImportAnswer> self_;  // until the call has finished
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
