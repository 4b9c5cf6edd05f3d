// How calls come in: what each needs (sessions, slots, a place in its sequence) or why it is
// refused, and how a prompt leads to sampling.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/hex.h"
#include "engine/refusals.h"
#include "engine/scheduler.h"
#include "engine/validate.h"
#include "models/begin.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

// The session that a call goes on in: the one that it names, or a new one with an id that follows
// from the request_id, so that a retry finds it. The id is empty where neither is the case.
SessionKey key_of(const GenerateRequest& request) {
  if (request.session) return {request.caller.name, *request.session};
  if (request.request_id.empty() || !request.keep.value_or(false)) return {request.caller.name, ""};
  return {request.caller.name, "r-" + hex(hash_of(request.request_id))};
}

}  // namespace

// --- Generate ---

void Scheduler::admit(GenerateRequest request, const RequestDigest& digest,
                      std::shared_ptr<TokenStream> stream) {
  auto generation = std::make_unique<Generation>();
  generation->request = std::move(request);
  generation->digest = digest;
  generation->stream = std::move(stream);
  if (Status s = refusal(); !s.ok()) {
    generation->stream->end(std::move(s));
    return;
  }
  if (!take_over_waiting(generation)) begin(std::move(generation));
}

// Admits a generation, lets it wait for slots, or ends it with the reason.
void Scheduler::begin(std::unique_ptr<Generation> generation) {
  generation->turns = turns_of(generation->request.caller);
  generation->served = shares_;
  generation->admitted = now_;
  Status status = find_retried(*generation) ? try_resume(*generation) : try_admit(*generation);
  if (!status.ok()) {
    const std::shared_ptr<TokenStream> stream = generation->stream;
    if (status.code() == Code::kResourceExhausted && generation->may_wait()) {
      status = enqueue(std::move(generation));
    }
    if (!status.ok()) stream->end(std::move(status));
    return;
  }
  generations_.push_back(std::move(generation));
  Generation& admitted = *generations_.back();
  if (admitted.phase == GenerationPhase::kAdmitted) begin_feeding(admitted);
}

// Resolves the session that a generation starts from and opens those of its samples. Not OK: says
// why it is refused, and nothing has changed.
Status Scheduler::try_admit(Generation& generation) {
  const Origin origin = {generation.request.session, generation.request.state};
  Result<Session*> source = resolve(origin, generation.request.caller);
  if (!source.ok()) return source.status();
  const int64_t position = *source == nullptr ? 0 : (*source)->position;
  const GenerateRequest& request = generation.request;
  const int64_t given = std::ssize(request.prompt) + (begins_prompt(request, position) ? 1 : 0);
  if (request.expected_position.value_or(position) != position) {
    return {Code::kAborted, "the sequence stands at position " + std::to_string(position) +
                                ", not at expected_position " +
                                std::to_string(*request.expected_position)};
  }
  const bool nothing_known = position == 0 && given == 0;
  if (nothing_known && !model_.spec().begin) {
    return invalid_argument("session '" + request.session.value_or("") +
                            "' is empty and so is the prompt: give at least one value");
  }
  if (Status s = validate_length(position, given, model_.spec()); !s.ok()) return s;

  Result<Session*> first = open_samples(generation, *source);
  if (!first.ok()) return first.status();
  complete_prompt(generation.request, position);
  generation.begins = nothing_known;
  if (!(*first)->key.id.empty()) {
    generation.record = request.request_id.empty() ? nullptr : std::make_shared<CallRecord>();
    (*first)->last_call = generation.record;
  }
  start_stream(generation, **first, position);
  if (generation.record) {
    CallRecord& record = *generation.record;
    record.request_id = request.request_id;
    record.digest = generation.digest;
    record.position = position;
    record.limit(options_.record_bytes, request.top_log_probs);
    record.reserve(generation.samples[0].remaining, request.top_log_probs);
  }
  return {};
}

// What a call starts from; null for a fresh sequence.
Result<Session*> Scheduler::resolve(const Origin& origin, const Caller& caller) {
  if (origin.state) return sessions_.resolve_state(*origin.state);
  if (!origin.session) return static_cast<Session*>(nullptr);
  return sessions_.resolve({caller.name, *origin.session});
}

// Opens a session for each sample and returns the first, which gets the state of the source.
Result<Session*> Scheduler::open_samples(Generation& generation, Session* source) {
  const GenerateRequest& request = generation.request;
  if (!request.session && sessions_.find(key_of(request)) != nullptr) {
    return Status(Code::kAlreadyExists,
                  "session '" + key_of(request).id + "' of request_id '" + request.request_id +
                      "' exists already and stands elsewhere than after this call: go on from the "
                      "session, or choose a new request_id");
  }
  const bool in_place = source != nullptr && request.in_place();
  if (Status s = take_room(request.slots(), request.caller, generation.has_waited); !s.ok()) {
    return s;
  }
  generation.samples.resize(request.samples);
  if (in_place) {  // with one sample only
    generation.samples[0].session = source;
    return source;
  }
  for (Sample& sample : generation.samples) sample.session = &open_sample(request);
  Session& first = *generation.samples[0].session;
  if (source != nullptr) {
    sessions_.copy(*source, first);
    source->idle_since = now_;
  } else {
    sessions_.reset(first);
  }
  return &first;
}

Session& Scheduler::open_sample(const GenerateRequest& request) {
  const bool kept = request.keep.value_or(false) && !request.session;
  return kept ? sessions_.open(key_of(request), request.caller)
              : sessions_.open_anonymous(request.caller);
}

// Counts the slots of a call that are to be leased next. Those that are kept are for calls that
// have waited.
Status Scheduler::take_room(int needed, const Caller& caller, bool has_waited) {
  if (needed > 0 && !has_waited && queue_.keeps()) return why_waiting(needed, caller);
  return sessions_.take_room(needed, caller);
}

// A first value is due before the prompt.
bool Scheduler::begins_prompt(const GenerateRequest& request, int64_t position) const {
  const std::optional<Begin>& begin = model_.spec().begin;
  const bool is_given = begin && begin->histogram.empty();
  return is_given && request.begin && position == 0 && !request.prompt.empty();
}

// The prompt of a new sequence with the first value that is due before it.
void Scheduler::complete_prompt(GenerateRequest& request, int64_t position) const {
  if (begins_prompt(request, position)) put_begin(model_.spec().begin, request.prompt);
}

// Sets how many values each sample may have, and sends Started.
void Scheduler::start_stream(Generation& generation, const Session& first, int64_t position) {
  const GenerateRequest& request = generation.request;
  const int64_t end = model_.spec().max_length();
  const int64_t given = position + static_cast<int64_t>(request.prompt.size());
  const int64_t most = request.max_values.value_or(options_.max_values);
  for (Sample& sample : generation.samples) {
    sample.remaining = end == 0 ? most : std::min(most, end - given);
    reserve_tails(request, sample);
  }
  generation.seed = *request.seed;
  generation.stream->start({.session = first.key.id,
                            .seed = generation.seed,
                            .position = position,
                            .numerics = model_.layout().numerics,
                            .queued = note_queued(request.came)});
}

// Counts how long a call that came then has waited until now.
Duration Scheduler::note_queued(TimePoint came) {
  const Duration queued = std::max(now_ - came, Duration(0));  // it may have come in this turn
  metrics_.queue_time.observe(queued);
  return queued;
}

// --- Retries ---

// True, with the record, when the request has the id of the last call on its session.
bool Scheduler::find_retried(Generation& generation) {
  const GenerateRequest& request = generation.request;
  if (request.request_id.empty()) return false;
  const Session* session = sessions_.find(key_of(request));
  if (session == nullptr || session->last_call == nullptr) return false;
  if (session->last_call->request_id != request.request_id) return false;
  generation.record = session->last_call;
  return true;
}

// Checks that a retry is the same call, and takes it over from an earlier try that still runs.
Status Scheduler::try_resume(Generation& generation) {
  CallRecord& record = *generation.record;
  complete_prompt(generation.request, record.position);
  const GenerateRequest& request = generation.request;
  if (record.digest != generation.digest) return used_otherwise(request.request_id);
  for (const auto& other : generations_) {
    if (!record.whole || other->ended() || other->record != generation.record) continue;
    end_generation(*other, made_again());
    other->record.reset();  // the new try writes it from here on
  }
  // Ending the first try collects its launches: that may fill the record or show a failed device.
  if (Status s = failure(); !s.ok()) return s;
  if (!record.whole) {
    return {Code::kAborted, "the call was too long to be sent again: go on with a new request_id"};
  }
  Session& session = *sessions_.find(key_of(request));
  if (!record.finished && !session.resting()) {
    return {Code::kAborted, "session '" + session.key.id + "' is busy; try again"};
  }
  resume(generation, session);
  return {};
}

// Puts a generation where its record ends. What is recorded is sent first; until then the session
// is held, unless the record is of a call that had finished.
void Scheduler::resume(Generation& generation, Session& session) {
  const GenerateRequest& request = generation.request;
  CallRecord& record = *generation.record;
  generation.samples.resize(1);
  Sample& sample = generation.samples[0];
  start_stream(generation, session, record.position);
  if (record.finished) {
    sample.finished = true;
    generation.apply(GenerationEvent::kResend);
    return;
  }
  check(session.resting(), "no other call runs on the session of this record");
  sample.session = &session;
  record.reserve(sample.remaining - std::ssize(record.values), request.top_log_probs);
  const auto given = static_cast<int64_t>(request.prompt.size());
  generation.fed = std::min(session.position - record.position, given);
  generation.begins = session.position == 0 && request.prompt.empty();
  if (record.values.empty()) return;
  check(generation.unfed().empty(), "a call that has sampled has consumed its prompt");
  sample.sampled = static_cast<int64_t>(record.values.size());
  sample.remaining -= sample.sampled;
  restore_tails(generation);
  generation.apply(GenerationEvent::kResend);
  start_sample(generation, 0);
}

// --- From prompt to samples ---

// Gives the first sample its prompt; where there is nothing to consume, sampling starts at once.
void Scheduler::begin_feeding(Generation& generation) {
  Session& session = *generation.samples[0].session;
  if (session.pending == kNoValue && !generation.request.prompt.empty()) {
    sessions_.know(session, generation.unfed().first(1));
    ++generation.fed;
  }
  if (generation.unfed().empty()) {
    start_sampling(generation);
    return;
  }
  generation.apply(GenerationEvent::kFeed);
  sessions_.apply(session, SessionEvent::kFeed);
  sessions_.set(session, {});
}

// Copies the state after the prompt to the other samples and lets all of them decode.
void Scheduler::start_sampling(Generation& generation) {
  generation.apply(GenerationEvent::kSample);
  const Session& first = *generation.samples[0].session;
  for (size_t i = 1; i < generation.samples.size(); ++i) {
    sessions_.copy(first, *generation.samples[i].session);
  }
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    start_sample(generation, static_cast<int>(i));
  }
}

void Scheduler::start_sample(Generation& generation, int index) {
  Sample& sample = generation.samples[index];
  Session& session = *sample.session;
  const int64_t end = model_.spec().max_length();
  std::optional<FinishReason> reason;
  if (sample.remaining == 0) {
    reason = session.position == end && end != 0 ? FinishReason::kEnd : FinishReason::kLength;
  } else if (generation.begins) {
    Emitted first;
    first.value = begin_value(*model_.spec().begin, generation.seed, index);
    reason = take_value(generation, index, first, model_.spec(), now_);
    sessions_.rewinds().note(session, {&first.value, 1});
  }
  if (reason) {
    // The session keeps a value that was given and not consumed, so its slot must have it.
    sessions_.set(session, {});
    finish_sample(generation, index, *reason);
    return;
  }
  sample.served = shares_;
  sessions_.apply(session, SessionEvent::kSample);
  sessions_.set(session, {.seed = generation.seed,
                          .stream = static_cast<uint32_t>(index),
                          .remaining = sample.remaining,
                          .sampling = generation.request.sampling,
                          .top_log_probs = generation.request.top_log_probs});
}

// --- Score ---

void Scheduler::feed_score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
                           std::vector<float> answers,
                           std::function<void(Result<ScoredChunk>)> done) {
  if (call->session != nullptr) call->waited = call->waits(now_);
  call->done = std::move(done);
  if (Status s = refusal(); !s.ok() && call->session == nullptr) {
    call->complete(std::move(s), now_);
    return;
  }
  if (call->over()) {  // its end and this message have crossed
    call->complete(*call->end, now_);
    return;
  }
  call->values = std::move(values);
  call->scored = {.log_probs = std::move(answers)};
  if (call->session == nullptr) {
    begin(call, false);
  } else {
    begin_chunk(*call);
  }
}

// Gives a Score call its slot and its first message, lets it wait, or tells it why not.
void Scheduler::begin(const std::shared_ptr<ScoreCall>& call, bool has_waited) {
  Status status = open_score(*call, has_waited);
  if (status.code() == Code::kResourceExhausted && !has_waited &&
      call->max_queue_time > Duration(0)) {
    status = enqueue(call);
    if (status.ok()) return;
  }
  if (!status.ok()) {
    call->complete(std::move(status), now_);
    return;
  }
  call->scored.queued = note_queued(call->asked);
  scores_.push_back(call);
  if (call->begin && call->session->position == 0) put_begin(model_.spec().begin, call->values);
  begin_chunk(*call);
}

// Begins to score the values of a message.
void Scheduler::begin_chunk(ScoreCall& call) {
  Session& session = *call.session;
  const auto given = static_cast<int64_t>(call.values.size());
  if (Status s = validate_length(session.position, given, model_.spec()); !s.ok()) {
    call.complete(std::move(s), now_);
    return;
  }
  call.fed = 0;
  call.came = now_;
  call.served = shares_;
  if (session.pending == kNoValue && given > 0) {
    sessions_.know(session, call.unfed().first(1));
    ++call.fed;
    sessions_.set(session, {});
  }
  call.scored.position = session.position;
  if (call.unfed().empty()) call.complete(std::move(call.scored), now_);
}

// Gives a Score call a session: the one that it starts from where it keeps that, else one of its
// own with the same state.
Status Scheduler::open_score(ScoreCall& call, bool has_waited) {
  const Result<Session*> source = resolve(call.origin, call.caller);
  if (!source.ok()) return source.status();
  const Result<Session*> session = open_scored(call, *source, has_waited);
  if (!session.ok()) return session.status();
  sessions_.apply(**session, SessionEvent::kFeed);
  call.session = *session;
  call.turns = turns_of(call.caller);
  call.admitted.store(true, std::memory_order_release);
  return {};
}

Result<Session*> Scheduler::open_scored(const ScoreCall& call, Session* source, bool has_waited) {
  if (call.keep) {
    source->last_call.reset();  // the session goes on: what came of that call is not sent again
    sessions_.set(*source, {});
    return source;
  }
  if (Status s = take_room(1, call.caller, has_waited); !s.ok()) return s;
  Session& session = sessions_.open_anonymous(call.caller);
  if (source != nullptr) {
    sessions_.copy(*source, session);
    source->idle_since = now_;
  } else {
    sessions_.reset(session);
  }
  return &session;
}

}  // namespace runnel
