#include "server/calls/export_call.h"

#include <utility>

#include "base/fields.h"
#include "engine/engine.h"
#include "server/calls/session_changes.h"

namespace runnel {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr Duration kLeastExpiry = std::chrono::seconds(1);
// The memory of an export in addition to the state: the header, and one piece in three forms (as it
// is, as a message, and encoded).
constexpr int64_t kBesideBytes = (int64_t{1} << 20) + 3 * int64_t{kPieceBytes};

}  // namespace

ExportCall::ExportCall(ServerContext& state, CallStart start, ExportSink& sink)
    : Call(state, std::move(start), sink), sink_(sink) {}

std::shared_ptr<ExportCall> ExportCall::make(ServerContext& state, CallStart start,
                                             ExportSink& sink) {
  return std::shared_ptr<ExportCall>(new ExportCall(state, std::move(start), sink));
}

void ExportCall::start(std::shared_ptr<const ServedModel> model, const std::string& session,
                       const ExportTerms& terms) {
  if (Status s = set_terms(terms); !s.ok()) return refuse(s);
  Engine& engine = *model->engine;
  auto room = state_.memory.take(engine.state_bytes() + kBesideBytes);
  if (!room.ok()) return refuse(room.status());
  room_ = std::make_shared<const MemoryBudget::Hold>(std::move(*room));
  image_ = std::make_shared<StateImage>();
  image_->bytes.resize(static_cast<size_t>(engine.state_bytes()));
  set_model(model);
  const auto call = std::static_pointer_cast<ExportCall>(shared_from_this());
  // The engine keeps the image, and so its memory, until it is done, however the call ends.
  export_session(state_, model, caller(), session, image_,
                 [weak = std::weak_ptr(call), room = room_](const auto& moved) {
                   if (const auto alive = weak.lock()) alive->note(moved.status());
                 });
}

Status ExportCall::set_terms(const ExportTerms& terms) {
  const Duration lasts = terms.expires_in.value_or(kLeastExpiry);
  if (lasts < kLeastExpiry || lasts > kMostExpiry) {
    return invalid_argument(place_of(fields::kExpiresIn) +
                            " is out of range; it must be 1 second to 10 years");
  }
  if (!state_.seal_keys) {
    if (!terms.expires_in) return {};
    return {Code::kFailedPrecondition,
            place_of(fields::kExpiresIn) +
                " needs a seal, and this server makes none: start it with --seal-keys"};
  }
  terms_.issued = state_.clock.unix_time();
  if (!terms.any_owner && !caller().name.empty()) {
    terms_.owner = owner_mark(state_.seal_keys->front(), caller().name);
  }
  if (terms.expires_in) terms_.expires = terms_.issued + lasts / std::chrono::seconds(1);
  return {};
}

void ExportCall::note(Status outcome) {
  {
    std::lock_guard lock(mutex_);
    outcome_ = std::move(outcome);
  }
  wake();
}

Call::Step ExportCall::next() {
  {
    std::lock_guard lock(mutex_);
    if (!outcome_) return Waiting();
    if (!outcome_->ok()) return *outcome_;
  }
  if (const auto status = ending()) return *status;
  const auto served = model();
  if (!writer_) {
    writer_.emplace(served->state_digest, served->engine->layout(), std::move(*image_),
                    state_.seal_keys ? &state_.seal_keys->front() : nullptr, terms_);
  }
  std::string piece = writer_->next(kPieceBytes);
  if (piece.empty()) return Status();
  begin_write();
  sink_.write(std::move(piece));
  return Writing();
}

}  // namespace runnel
