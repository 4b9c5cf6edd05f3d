#include "server/calls/import_call.h"

#include <utility>
#include <vector>

#include "base/fields.h"
#include "engine/refusals.h"
#include "server/calls/session_changes.h"

namespace runnel {
namespace {

constexpr int kMostStalls = 10;  // stall timeouts that the client may take to send the file

}  // namespace

ImportCall::ImportCall(ServerContext& state, CallStart start, ImportSink& sink)
    : Call(state, std::move(start), sink), sink_(sink) {
  bound_reads(kMostStalls * state.stall_timeout);
}

std::shared_ptr<ImportCall> ImportCall::make(ServerContext& state, CallStart start,
                                             ImportSink& sink) {
  return std::shared_ptr<ImportCall>(new ImportCall(state, std::move(start), sink));
}

// --- The door's side ---

void ImportCall::start() {
  if (Status s = admit(); !s.ok()) return refuse(s);
  if (Status s = state_.models.ready(); !s.ok()) return refuse(s);
  if (state_.draining.load(std::memory_order_acquire)) return refuse(draining_status());
  resume();
}

// The bytes that the call holds between messages.
int64_t ImportCall::held() const {
  if (!reader_) return 0;
  return model()->engine->state_bytes() + (reader_->header() ? 0 : kStateHeaderMemory);
}

Status ImportCall::reserve(int64_t bytes) { return state_.memory.grow(*room_, held() + bytes); }

Status ImportCall::open(std::shared_ptr<const ServedModel> model, std::string id,
                        bool allow_inexact) {
  const int64_t more = model->engine->state_bytes() + kStateHeaderMemory;
  if (Status s = state_.memory.grow(*room_, room_->bytes() + more); !s.ok()) return s;
  const SealKeys* const keys = state_.seal_keys ? &*state_.seal_keys : nullptr;
  id_ = std::move(id);
  allow_inexact_ = allow_inexact;
  set_model(model);
  reader_.emplace(
      [model = std::move(model), allow_inexact, keys, name = caller().name,
       now = state_.clock.unix_time()](const StateHeader& header) {
        const StateTarget target = {.spec = model->engine->spec(),
                                    .layout = model->engine->layout(),
                                    .model = model->state_digest,
                                    .any_numerics = allow_inexact,
                                    .needs_seal = keys != nullptr,
                                    .keys = keys,
                                    .caller = name,
                                    .now = now};
        const Status status = check_state(header, target);
        return status.ok() ? Result<StateLayout>(target.layout) : Result<StateLayout>(status);
      },
      keys);
  return {};
}

Status ImportCall::add(std::span<const std::byte> piece) { return reader_->add(piece); }

void ImportCall::go_on() {
  set_phase(Phase::kIdle);
  resume();
}

void ImportCall::close() {
  Result<StateImage> image = whole_image();
  if (!image.ok()) return refuse(image.status());
  set_phase(Phase::kMaking);
  const auto call = std::static_pointer_cast<ImportCall>(shared_from_this());
  import_session(state_, model(), caller(), id_, std::make_shared<StateImage>(std::move(*image)),
                 [weak = std::weak_ptr(call), room = room_](Result<std::vector<SessionInfo>> made) {
                   if (const auto alive = weak.lock()) alive->note(std::move(made));
                 });
}

// The state that has been read, after the whole file has been checked.
Result<StateImage> ImportCall::whole_image() {
  if (!reader_) {
    return invalid_argument(
        "the call has no message: the first has a target, and the others bring data");
  }
  Result<StateImage> image = reader_->finish();
  if (!image.ok() || reader_->subnormal() == 0 || allow_inexact_) return image;
  return Status(Code::kFailedPrecondition,
                "the state file has " + std::to_string(reader_->subnormal()) +
                    " numbers below 1.2e-38, which become zeros: what follows would have other "
                    "bits; set " +
                    place_of(fields::kAllowInexact) + " to go on all the same");
}

// --- Turns ---

void ImportCall::set_phase(Phase phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
}

void ImportCall::note(Result<std::vector<SessionInfo>> made) {
  {
    std::lock_guard lock(mutex_);
    made_ = std::move(made);
    phase_ = Phase::kMade;
  }
  wake();
}

Call::Step ImportCall::next() {
  std::unique_lock lock(mutex_);
  const Phase phase = phase_;
  if (phase == Phase::kMaking) return Waiting();
  if (phase == Phase::kMade) {
    if (!made_->ok()) return made_->status();
    lock.unlock();  // no other thread uses made_ any more
    sink_.answer((**made_)[0]);
    return Status();
  }
  lock.unlock();
  if (const auto status = ending()) return *status;
  if (phase == Phase::kReading) return Waiting();
  set_phase(Phase::kReading);
  MemoryBudget::shrink(*room_, held());
  begin_read();
  sink_.read();
  return Waiting();
}

}  // namespace runnel
