#include "server/calls/generate_call.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hex.h"
#include "base/sha256.h"
#include "engine/request_digest.h"

namespace runnel {
namespace {

constexpr int64_t kCallBytes = 16 << 10;  // the memory that any call takes
constexpr Duration kForOwnState = std::chrono::seconds(1);

// The maximum memory that a call may hold for its reader: its stream, the group that is taken from
// it, and an event.
int64_t bytes_of_answers(int room, int top_log_probs) {
  return kCallBytes + 2 * TokenStream::bytes(room, top_log_probs) +
         GroupEvents::bytes(room, top_log_probs);
}

// The values that end a sample. They are not part of its text.
std::vector<int32_t> ends_of(const GenerateRequest& request, const Spec& spec) {
  if (request.ignore_eos) return {};
  std::vector<int32_t> ends = spec.eos;
  if (request.end_of_turn) ends.push_back(*request.end_of_turn);
  return ends;
}

std::string digits_of(const Sha256Digest& digest) {
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace

GenerateCall::GenerateCall(ServerContext& state, CallStart start, GenerateSink& sink)
    : Call(state, std::move(start), sink), sink_(sink) {}

std::shared_ptr<GenerateCall> GenerateCall::make(ServerContext& state, CallStart start,
                                                 GenerateSink& sink) {
  return std::shared_ptr<GenerateCall>(new GenerateCall(state, std::move(start), sink));
}

void GenerateCall::start(std::shared_ptr<const ServedModel> model, GenerateRequest request) {
  if (uses_store(request)) return open_stored(std::move(model), std::move(request), {});
  submit(std::move(model), std::move(request));
}

void GenerateCall::start_scored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                                int top_log_probs) {
  if (uses_store(request)) return open_stored(std::move(model), std::move(request), top_log_probs);
  submit_scored(std::move(model), std::move(request), top_log_probs);
}

// --- Sessions of the store ---

// Whether the call names a session, or makes one whose name is known in advance.
bool GenerateCall::uses_store(const GenerateRequest& request) const {
  return state_.kept != nullptr && (request.session || request.makes_named());
}

void GenerateCall::open_stored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                               std::optional<int> scored) {
  request.caller = caller();
  auto hold = state_.memory.take(bytes_of(request));
  if (!hold.ok()) return refuse(hold.status());
  const RequestDigest digest = digest_of(request);
  const bool is_seed_given = request.seed.has_value();
  if (!is_seed_given) request.seed = seed_of(request.request_id);
  const std::string& id = request.request_id;
  const Sha256Digest name = id.empty() ? digest : sha256_of(std::as_bytes(std::span(id)));
  SessionUse use = {.id = request.session ? *request.session : made_session_id(id),
                    .changes = request.in_place() || request.makes_named(),
                    .request = (id.empty() ? "" : std::string(kNamedCall)) + digits_of(name),
                    .digest = digits_of(digest),
                    .seed = *request.seed,
                    .is_seed_given = is_seed_given,
                    .expected_position = request.expected_position};
  // A session that the call makes has no earlier position.
  if (!request.session) use.expected_position.reset();
  const std::weak_ptr<GenerateCall> weak =
      std::static_pointer_cast<GenerateCall>(shared_from_this());
  use.on_lost = [weak](const Status& status) {
    if (const auto call = weak.lock()) call->refuse(status);
  };
  set_model(model);
  {
    std::lock_guard lock(mutex_);
    held_ = std::move(request);
    held_room_ = std::move(*hold);
    scored_ = scored;
  }
  state_.kept->open(std::move(model), caller(), std::move(use), [weak](auto opened) {
    const auto call = weak.lock();
    if (call == nullptr) return;
    {
      std::lock_guard lock(call->mutex_);
      call->opened_stored_ = std::move(opened);
    }
    call->wake();
  });
}

Call::Step GenerateCall::start_stored(const Result<std::shared_ptr<StoredSession>>& opened) {
  if (const auto status = ending()) return *status;
  if (!opened.ok()) return opened.status();
  GenerateRequest request;
  std::optional<int> scored;
  {
    std::lock_guard lock(mutex_);
    request = std::move(held_);
    held_room_ = {};
    scored = scored_;
  }
  const auto stored = std::make_shared<OpenSession>(*opened);
  is_stored_ = stored->session != nullptr;
  reads_stored_ = !is_stored_;
  if (is_stored_) stored->session->prepare(request);
  stored_ = stored;
  if (scored) {
    submit_scored(model(), std::move(request), *scored);
  } else {
    submit(model(), std::move(request));
  }
  return Waiting();
}

// The session in the store. It belongs to the call until the result is released. A call that makes
// a session gets one later.
GenerateCall::Stored GenerateCall::use_stored(GenerateRequest& request) {
  Stored stored = stored_.lock();
  if (stored != nullptr || state_.kept == nullptr || token_room_ != nullptr) return stored;
  stored = std::make_shared<OpenSession>();
  stored_ = stored;
  makes_stored_ = request.keep.value_or(false) && !request.session;
  if (makes_stored_) request.made = random_session_id();
  return stored;
}

// A function that ends the call in the engine, and then releases its session. If the call has made
// the session `made`, and has not adopted it, no client knows its name, so it is deleted.
std::function<void()> GenerateCall::ender(std::shared_ptr<TokenStream> stream, Stored stored,
                                          const std::string& made) {
  if (made.empty()) {
    return [stream = std::move(stream), session = let_session_end(), stored = std::move(stored)] {
      stream->cancel();
    };
  }
  return [stream = std::move(stream), stored = std::move(stored), model = model(),
          key = SessionKey{caller().name, made}] {
    stream->cancel();
    if (!stored->is_adopted) model->engine->delete_session(key, [](const Status&) {});
  };
}

// If the event names a session that the engine has made, the call adopts this session in the store.
// The client learns the name only after that.
Status GenerateCall::adopt_made(const GenerateEvent& event) {
  const auto* const started = std::get_if<Started>(&event);
  if (!makes_stored_ || started == nullptr || started->session.empty()) return {};
  const Stored stored = stored_.lock();
  if (stored == nullptr || stored->session != nullptr) return {};
  auto adopted = state_.kept->adopt(model(), caller(), started->session, false);
  if (!adopted.ok()) {  // no client knows the session's name
    model()->engine->delete_session({caller().name, started->session}, [](const Status&) {});
    return adopted.status();
  }
  stored->session = std::move(*adopted);
  stored->is_adopted = true;
  is_stored_ = true;
  return {};
}

// Has the session saved, unless the call has released it, because the call was ended.
void GenerateCall::begin_save() {
  const Stored stored = stored_.lock();
  if (stored == nullptr) return;
  saves_ = true;
  const std::weak_ptr<GenerateCall> weak =
      std::static_pointer_cast<GenerateCall>(shared_from_this());
  const auto take_saved = [weak](const Status& status) {
    const auto call = weak.lock();
    if (call == nullptr) return;
    {
      std::lock_guard lock(call->mutex_);
      call->saved_ = status;
    }
    call->wake();
  };
  stored->session->save(take_saved, logged_);
}

// To be called before an event is written. If only Finished follows it, the session is saved while
// the client takes the event.
void GenerateCall::save_early() {
  if (!is_stored_ || wants_token_ || saves_ || !group_.end || !group_.end->ok()) return;
  const Finished* const finished = events_->last_finished();
  if (finished == nullptr) return;
  note_end(logged_, *finished);
  begin_save();
}

// After the last event before Finished: waits until the session is saved, and then writes Finished.
Call::Step GenerateCall::save_session() {
  std::optional<Status> saved;
  {
    std::lock_guard lock(mutex_);
    saved = saved_;
  }
  if (saved) return saved->ok() ? write_finished() : Step(*saved);
  if (saves_) return Waiting();
  begin_save();
  if (saves_) return Waiting();
  return ending().value_or(Status(Code::kCancelled, "the call was ended"));
}

Call::Step GenerateCall::write_finished() {
  const GenerateEvent event = *std::exchange(finished_, std::nullopt);
  note(event);
  begin_write();
  sink_.write(event);
  return Writing();
}

// --- To the engine ---

// The status of the call when the engine refuses it.
Status GenerateCall::refusal_of(Status status) const {
  return reads_stored_ ? unless_given_up(std::move(status)) : status;
}

void GenerateCall::submit(std::shared_ptr<const ServedModel> model, GenerateRequest request) {
  Engine& engine = *model->engine;
  request.caller = caller();
  // The stream's memory is allocated before the engine examines the request.
  const int top = std::clamp(request.top_log_probs, 0, kMaxTopLogProbs);
  const int room = engine.stream_room(request.samples);
  request.held_bytes = bytes_of_answers(room, top);
  auto hold = state_.memory.take(bytes_of(request) + request.held_bytes);
  if (!hold.ok()) return refuse(hold.status());
  // The stream is the last part of a call to be destroyed, so it keeps the memory hold.
  const auto kept = std::make_shared<const MemoryBudget::Hold>(std::move(*hold));
  const auto stream = std::make_shared<TokenStream>(request.delivery, room, top,
                                                    [kept, wake = waker()] { wake(); });
  {
    std::lock_guard lock(mutex_);
    events_.emplace(model->tokenizer, request.top_log_probs > 0, ends_of(request, engine.spec()));
    stream_ = stream;
  }
  set_model(std::move(model));
  notes_prompt_ = request.turn.has_value();
  if (!notes_prompt_) note_given(std::ssize(request.prompt));
  const Stored stored = use_stored(request);
  on_end(ender(stream, stored, request.made));
  log_start(request);
  if (is_stored_) logged_ = loggable(request);
  if (Status s = engine.generate(std::move(request), stream); !s.ok()) refuse(s);
}

void GenerateCall::submit_scored(std::shared_ptr<const ServedModel> model, GenerateRequest request,
                                 int top_log_probs) {
  Engine& engine = *model->engine;
  const std::weak_ptr<GenerateCall> weak =
      std::static_pointer_cast<GenerateCall>(shared_from_this());
  const auto accepted = [weak] {
    const auto call = weak.lock();
    if (call == nullptr) return;
    {
      std::lock_guard lock(call->mutex_);
      call->score_accepted_ = true;
    }
    call->wake();
  };
  const auto scoring =
      engine.start_score(caller(), {request.session, request.state, {}, request.model},
                         request.begin, false, request.max_queue_time, top_log_probs, accepted);
  if (!scoring.ok()) return refuse(scoring.status());
  std::vector<int32_t> values = request.prompt;
  {
    std::lock_guard lock(mutex_);
    held_ = std::move(request);
  }
  set_model(model);
  on_end(
      [model, scoring = *scoring, stored = stored_.lock()] { model->engine->end_score(scoring); });
  const Status status =
      engine.score(*scoring, std::move(values), [weak](Result<ScoredChunk> scores) {
        const auto call = weak.lock();
        if (call == nullptr) return;
        {
          std::lock_guard lock(call->mutex_);
          call->scores_ = std::move(scores);
        }
        call->wake();
      });
  if (!status.ok()) refuse(status);
}

Call::Step GenerateCall::take_scores(const Result<ScoredChunk>& scores) {
  const Stored stored = stored_.lock();  // the call keeps the session
  release();                             // releases its state
  if (!scores.ok()) return ending().value_or(refusal_of(scores.status()));
  sink_.take_scores(*scores);
  GenerateRequest request;
  {
    std::lock_guard lock(mutex_);
    request = std::move(held_);
  }
  // The state in which the prompt was scored becomes free within a turn or two of the scheduler.
  request.max_queue_time = std::max(request.max_queue_time, kForOwnState);
  submit(model(), std::move(request));
  return Waiting();
}

void GenerateCall::start_with_token(std::shared_ptr<const ServedModel> model,
                                    GenerateRequest request, const TokenUse& use) {
  if (Status s = check_tokens(state_, *model, request, use); !s.ok()) return refuse(s);
  auto hold = state_.memory.take(bytes_of_tokens(*model, use));
  if (!hold.ok()) return refuse(hold.status());
  const auto room = std::make_shared<const MemoryBudget::Hold>(std::move(*hold));
  std::shared_ptr<StateImage> image;
  if (use.given) {
    Result<StateImage> opened = open_token(state_, *model, caller(), *use.given);
    state_.metrics.tokens[static_cast<size_t>(opened.status().code())].add();
    if (!opened.ok()) return refuse(opened.status());
    image = std::make_shared<StateImage>(std::move(*opened));
  }
  request.keep = request.samples == 1;
  {
    std::lock_guard lock(mutex_);
    held_ = std::move(request);
    token_room_ = room;
    wants_token_ = use.wanted;
  }
  set_model(model);
  const auto call = std::static_pointer_cast<GenerateCall>(shared_from_this());
  // The session must end even if the call ended before the session existed.
  const auto made = [weak = std::weak_ptr(call), model, room](const Status& status,
                                                              const SessionKey& key) {
    auto session = status.ok() ? std::make_shared<PassingSession>(model, key) : nullptr;
    if (const auto alive = weak.lock()) alive->take_session(status, std::move(session));
  };
  if (image == nullptr) {
    return model->engine->create_session(caller(), "", [made](const Result<SessionInfo>& session) {
      made(session.status(), session.ok() ? session->key : SessionKey());
    });
  }
  model->engine->import_session(caller(), "", image, [made](const auto& sessions) {
    made(sessions.status(), sessions.ok() ? (*sessions)[0].key : SessionKey());
  });
}

void GenerateCall::take_session(const Status& status, std::shared_ptr<PassingSession> session) {
  {
    std::lock_guard lock(mutex_);
    opened_ = status;
    opened_session_ = std::move(session);
  }
  wake();
}

Call::Step GenerateCall::start_in_session(const Status& opened) {
  if (!opened.ok()) return ending().value_or(opened);
  GenerateRequest request;
  {
    std::lock_guard lock(mutex_);
    request = std::move(held_);
    request.session = opened_session_->key().id;
  }
  submit(model(), std::move(request));
  return Waiting();
}

// The session of a call with tokens; null without tokens. It ends when the result is released.
std::shared_ptr<PassingSession> GenerateCall::let_session_end() {
  std::lock_guard lock(mutex_);
  session_ = opened_session_;
  return std::exchange(opened_session_, nullptr);
}

// After the last event before Finished: has the state exported. When the state is there, writes the
// token and Finished.
Call::Step GenerateCall::write_token() {
  if (const auto status = ending()) return *status;
  std::optional<Status> exported;
  std::shared_ptr<PassingSession> session;
  {
    std::lock_guard lock(mutex_);
    exported = exported_;
    session = session_.lock();
  }
  if (image_ == nullptr && session != nullptr) {
    image_ = std::make_shared<StateImage>();
    const auto call = std::static_pointer_cast<GenerateCall>(shared_from_this());
    // The engine keeps the session and the image's memory until it is done, however the call ends.
    model()->engine->export_session(
        session->key(), image_,
        [weak = std::weak_ptr(call), session, room = token_room_](const auto& moved) {
          const auto alive = weak.lock();
          if (alive == nullptr) return;
          {
            std::lock_guard lock(alive->mutex_);
            alive->exported_ = moved.status();
          }
          alive->wake();
        });
    return Waiting();
  }
  if (!exported) return Waiting();
  if (!exported->ok()) return *exported;
  sink_.take_token(make_token(state_, *model(), caller(), std::move(*image_)));
  return write_finished();
}

void GenerateCall::stop(int sample) {
  std::shared_ptr<TokenStream> stream;
  {
    std::lock_guard lock(mutex_);
    stream = stream_;
  }
  stream->stop(sample);
}

// Values that were already sampled are still sent.
void GenerateCall::end(const Status& status) {
  Call::end(status);
  release();
}

Call::Step GenerateCall::next() {
  std::shared_ptr<TokenStream> stream;
  std::optional<Result<ScoredChunk>> scores;
  bool score_accepted = false;
  std::optional<Status> opened;
  std::optional<Result<std::shared_ptr<StoredSession>>> stored;
  {
    std::lock_guard lock(mutex_);
    stream = stream_;
    scores.swap(scores_);
    score_accepted = std::exchange(score_accepted_, false);
    opened.swap(opened_);
    stored.swap(opened_stored_);
  }
  if (stored) return start_stored(*stored);
  if (score_accepted) sink_.begin_scores();
  if (scores) return take_scores(*scores);
  if (opened) return start_in_session(*opened);
  if (stream == nullptr) return Waiting();
  for (;;) {
    if (auto event = events_->next()) {
      if (hold_finished(*event)) continue;
      if (Status s = adopt_made(*event); !s.ok()) return s;
      note(*event);
      save_early();
      begin_write();
      sink_.write(*event);
      return Writing();
    }
    if (group_.end && !group_.end->ok()) return ending().value_or(refusal_of(*group_.end));
    if (group_.end && !finished_) return *group_.end;
    if (group_.end) return wants_token_ ? write_token() : save_session();
    if (!stream->take(group_)) return Waiting();
    events_->start(group_);
  }
}

// The event Finished waits for a token, or until the session is saved, even if the call has been
// ended in the meantime and has released the session. The session of a call with tokens has no name
// for the client.
bool GenerateCall::hold_finished(GenerateEvent& event) {
  auto* const started = std::get_if<Started>(&event);
  if (started != nullptr && token_room_ != nullptr) started->session.clear();
  const auto* const finished = std::get_if<Finished>(&event);
  if (finished == nullptr) return false;
  if (!wants_token_ && !is_stored_) return false;
  if (!saves_) note_end(logged_, *finished);
  finished_ = *finished;
  return true;
}

void GenerateCall::note(const GenerateEvent& event) {
  if (const auto* started = std::get_if<Started>(&event)) {
    note_start(logged_, *started);
    return note_admitted(started->queued);
  }
  const auto* finished = std::get_if<Finished>(&event);
  if (finished != nullptr && notes_prompt_) note_given(finished->prompt_values);
  const auto* values = std::get_if<SampledValues>(&event);
  if (values == nullptr) return;
  int64_t sampled = 0;
  for (const ValueRun& run : values->runs) {
    sampled += std::ssize(run.values);
    if (!logged_) continue;
    for (const int32_t value : run.values) logged_->sampled = hash_with(logged_->sampled, value);
  }
  note_values(sampled);
}

void GenerateCall::log_start(const GenerateRequest& request) const {
  if (!state_.log.wants_debug()) return;
  state_.log.debug("begin", {{"rpc", start_.rpc},
                             {"peer", start_.peer},
                             {"caller", caller().name},
                             {"model", model()->name},
                             {"session", request.session.value_or("")},
                             {"request_id", request.request_id},
                             {"samples", int64_t{request.samples}}});
}

}  // namespace runnel
