#include "engine/admission.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/fields.h"
#include "base/text.h"
#include "base/within_memory.h"
#include "engine/refusals.h"
#include "engine/validate.h"
#include "models/begin.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

// The session that a call works on: the session it names, or the one it makes. The id of a made
// session is derived from the request_id, so that a retry finds the session. Without a request_id,
// the id is the one that the server has drawn, or empty.
SessionKey key_of(const GenerateRequest& request) {
  if (request.session) return {request.caller.name, *request.session};
  if (request.makes_named()) return {request.caller.name, made_session_id(request.request_id)};
  return {request.caller.name, request.made};
}

// ABORTED if a sequence is not at the position that its caller expects.
Status check_position(int64_t position, const std::optional<int64_t>& expected) {
  return expected.value_or(position) == position ? Status() : not_at(position, *expected);
}

// The call has more values than a record may hold.
Status too_long_to_resend() {
  return {Code::kAborted,
          "the server does not keep all values of a call that is this long, so it cannot send them "
          "again: use a new request_id"};
}

}  // namespace

Admission::Admission(Model& model, const EngineOptions& options, Sessions& sessions,
                     WaitingRoom& waiting_room, Steps& steps, const TurnClock& time,
                     EngineMetrics& metrics)
    : model_(model),
      spec_(model.spec()),
      numerics_(model.layout().numerics),
      options_(options),
      sessions_(sessions),
      waiting_room_(waiting_room),
      steps_(steps),
      time_(time),
      metrics_(metrics),
      chunk_(model.limits().chunk) {}

// --- Generate ---

void Admission::admit(GenerateRequest request, const RequestDigest& digest,
                      std::shared_ptr<TokenStream> stream) {
  auto generation = std::make_unique<Generation>();
  generation->request = std::move(request);
  generation->digest = digest;
  generation->stream = std::move(stream);
  if (!waiting_room_.take_over(generation)) begin(generation);
}

bool Admission::go_on(QueuedCall& call) {
  if (call.score) return begin(call.score, true);
  call.generation->has_waited = true;
  return begin(call.generation);
}

// Admits a generation, lets it wait, or refuses it. The result is as for go_on().
bool Admission::begin(std::unique_ptr<Generation>& generation) {
  generation->admitted = time_.now();
  const bool is_retry = find_retried(*generation);
  Status status = is_retry ? try_resume(*generation) : try_admit(*generation);
  if (status.ok()) {
    if (const auto& stored = generation->request.stored) stored->record = generation->record;
    steps_.start(std::move(generation));
    return true;
  }
  if (generation->has_waited && is_states_used_up(status)) return false;
  const std::shared_ptr<TokenStream> stream = generation->stream;
  // A retry needs no slot, so it can lack only memory.
  if (status.code() == Code::kResourceExhausted && !is_retry && generation->may_wait()) {
    status = waiting_room_.add(std::move(generation));
  }
  if (!status.ok()) stream->end(std::move(status));
  return true;
}

// Resolves the session that a generation starts from and opens the sessions of its samples. If the
// result is not OK, nothing has changed.
Status Admission::try_admit(Generation& generation) {
  if (generation.stream->cancelled()) return {Code::kCancelled, "the call was cancelled"};
  const std::shared_ptr<StoredCall>& stored = generation.request.stored;
  if (stored != nullptr && !stored->refusal.ok()) return stored->refusal;
  const Origin origin = {generation.request.session, generation.request.state};
  Result<Session*> source = resolve(origin, generation.request.caller);
  if (!source.ok()) return source.status();
  const HeldSource held(sessions_, *source);
  const int64_t position = *source == nullptr ? 0 : (*source)->position;
  const TurnPlace place = place_of(generation.request, *source);
  if (Status s = check_start(generation.request, place, position); !s.ok()) return s;
  // The prefix is found before slots are leased, because leasing may evict it. A found prefix is
  // evicted later than others.
  const auto prefix = *source == nullptr ? find_prefix(generation.request) : std::nullopt;
  Result<Session*> first = open_samples(generation, *source);
  if (!first.ok()) return first.status();
  take_turn(generation.request, place);
  generation.begins = position == 0 && generation.request.prompt.empty();
  complete_prompt(generation.request, position);
  if (*source == nullptr) {
    start_afresh(generation, prefix);
  } else if (*first != *source) {
    start_from(**source, **first);
  }
  if (!(*first)->key.id.empty()) {
    if (!generation.request.request_id.empty()) {
      generation.record = std::make_shared<CallRecord>();
    }
    (*first)->last_call = generation.record;
  }
  start_stream(generation, **first, position, place);
  if (generation.record) start_record(generation, position, place);
  return {};
}

// The place of the session in its conversation, if the call is a turn.
TurnPlace Admission::place_of(const GenerateRequest& request, const Session* source) const {
  const bool has_begun = source != nullptr && source->position > 0;
  if (!request.turn || !has_begun) return TurnPlace::kStart;
  return place_in(*request.turn, last_values(model_, *source), spec_.eos, request.tokenizer.get());
}

// Whether the call may start from a sequence of `position` values.
Status Admission::check_start(const GenerateRequest& request, TurnPlace place,
                              int64_t position) const {
  if (Status s = check_position(position, request.expected_position); !s.ok()) return s;
  if (request.turn) {
    if (Status s = check_turn(*request.turn, place); !s.ok()) return s;
  }
  const int64_t given = values_given(request, place) + (begins_prompt(request, position) ? 1 : 0);
  if (position == 0 && given == 0 && !spec_.begin) {
    Status status = invalid_argument("session '" + request.session.value_or("") +
                                     "' is empty and so is the prompt: give at least one value");
    return status.at_field(fields::kPrompt);
  }
  return validate_length(position, given, fields::kPrompt, {spec_, request.model});
}

// The session that a call starts from; null for a fresh sequence.
Result<Session*> Admission::resolve(const Origin& origin, const Caller& caller) {
  if (origin.state) return sessions_.resolve_state(*origin.state);
  if (!origin.session) return static_cast<Session*>(nullptr);
  return sessions_.resolve({caller.name, *origin.session}, fields::kSession);
}

// Opens a session for each sample and returns the first.
Result<Session*> Admission::open_samples(Generation& generation, Session* source) {
  const GenerateRequest& request = generation.request;
  if (!request.session && sessions_.find(key_of(request)) != nullptr) {
    return Status(
        Code::kAlreadyExists,
        "session '" + key_of(request).id + "' of request_id " + quote(request.request_id) +
            " exists already and is at another position than after this call: continue the "
            "session, or choose a new request_id");
  }
  const bool in_place = source != nullptr && request.in_place();
  if (Status s = waiting_room_.take_room(request.slots(), request.caller, generation.has_waited,
                                         fields::kSamples);
      !s.ok()) {
    return s;
  }
  generation.samples.resize(request.samples);
  if (in_place) {  // with one sample only
    generation.samples[0].session = source;
    return source;
  }
  for (Sample& sample : generation.samples) sample.session = &open_sample(request);
  return generation.samples[0].session;
}

Session& Admission::open_sample(const GenerateRequest& request) {
  const bool kept = request.keep.value_or(false) && !request.session;
  return kept ? sessions_.open(key_of(request), request.caller)
              : sessions_.open_anonymous(request.caller);
}

// Gives a new session the state of `source`.
void Admission::start_from(Session& source, Session& session) {
  sessions_.copy(source, session);
  source.idle_since = time_.now();
}

// Whether the prompt of a new sequence may begin at a kept state. A session that can be rewound
// must have read all of its values itself.
bool Admission::reuses_prefix(const GenerateRequest& request) const {
  const bool rewinds = sessions_.rewinds().on() && request.keep.value_or(false);
  return sessions_.prefixes().on() && !request.prompt.empty() && !rewinds;
}

// The longest kept prefix of a new sequence.
std::optional<PrefixKey> Admission::find_prefix(const GenerateRequest& request) const {
  if (!reuses_prefix(request)) return std::nullopt;
  PrefixCache& prefixes = sessions_.prefixes().cache();
  PrefixKey key = prefixes.begin(request.caller.name);
  if (begins_prompt(request, 0)) prefixes.extend(key, {&spec_.begin->value, 1});
  const auto found = prefixes.find(key, request.prompt);
  if (found) prefixes.use(*found, time_.now());  // so that it is evicted later than others
  return found;
}

// Begins a new sequence: at a kept state if there is one, else empty.
void Admission::start_afresh(Generation& generation, const std::optional<PrefixKey>& prefix) {
  const std::vector<int32_t>& prompt = generation.request.prompt;
  Session& session = *generation.samples[0].session;
  if (prefix && sessions_.prefixes().load(*prefix, session.slot, time_.now())) {
    sessions_.stand(session, prefix->length + 1, prompt[static_cast<size_t>(prefix->length)]);
    generation.prefix = prefix;
    generation.cached = prefix->length;
    generation.fed = static_cast<size_t>(prefix->length) + 1;
    metrics_.prefix_hits.add();
    metrics_.prefix_values.add(prefix->length);
  } else {
    sessions_.reset(session);
    if (reuses_prefix(generation.request)) metrics_.prefix_misses.add();
  }
  plan_prefix(generation);
}

// Decides where to keep a state of a new sequence: where later prompts are likely to differ from
// this one. If the model takes prompts in chunks, that is at the end of a chunk.
void Admission::plan_prefix(Generation& generation) {
  const GenerateRequest& request = generation.request;
  if (!sessions_.prefixes().on() || request.prompt.empty()) return;
  PrefixCache& prefixes = sessions_.prefixes().cache();
  if (!generation.prefix) generation.prefix = prefixes.begin(request.caller.name);
  const int64_t most = std::ssize(request.prompt) - 1;  // the last value is pending
  const int64_t begin = begins_prompt(request, 0) ? 1 : 0;
  const int64_t shared = std::clamp<int64_t>(request.shared.value_or(most) + begin, 0, most);
  generation.keep_at = shared / chunk_ * chunk_;
  if (generation.keep_at < options_.prefix_least) generation.keep_at = 0;
  // If prompts are taken in chunks, an answer's state differs in its bits from that of the same
  // values read as a prompt.
  if (request.samples == 1 && chunk_ == 1) generation.least_answer = options_.prefix_least;
}

// Whether the model's first value must be put before the prompt.
bool Admission::begins_prompt(const GenerateRequest& request, int64_t position) const {
  const bool is_given = spec_.begin && spec_.begin->histogram.empty();
  return is_given && request.begin && position == 0 && !request.prompt.empty();
}

// Puts the model's first value before the prompt of a new sequence, if it needs one.
void Admission::complete_prompt(GenerateRequest& request, int64_t position) const {
  if (begins_prompt(request, position)) put_begin(spec_.begin, request.prompt);
}

void Admission::start_record(Generation& generation, int64_t position, TurnPlace place) {
  const GenerateRequest& request = generation.request;
  CallRecord& record = *generation.record;
  record.request_id = request.request_id;
  record.digest = generation.digest;
  record.position = position;
  record.place = place;
  record.limit(options_.record_bytes, request.top_log_probs);
  record.reserve(generation.samples[0].remaining, request.top_log_probs);
}

// Sets how many values each sample may have, and sends Started.
void Admission::start_stream(Generation& generation, const Session& first, int64_t position,
                             TurnPlace place) {
  const GenerateRequest& request = generation.request;
  const int64_t end = spec_.max_length();
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
                            .numerics = numerics_,
                            .queued = note_queued(request.came),
                            .place = place});
}

// Records how long a call that came at `came` has waited.
Duration Admission::note_queued(TimePoint came) {
  // The call may have come in this turn, after the clock was read.
  const Duration queued = std::max(time_.now() - came, Duration(0));
  metrics_.queue_time.observe(queued);
  return queued;
}

// --- Retries ---

// Returns true, and sets the record, if the request has the id of the last call on its session. The
// record is the session's, or else that of its store.
bool Admission::find_retried(Generation& generation) {
  const GenerateRequest& request = generation.request;
  if (request.request_id.empty()) return false;
  const Session* session = sessions_.find(key_of(request));
  if (session == nullptr) return false;
  if (session->last_call != nullptr && session->last_call->request_id == request.request_id) {
    generation.record = session->last_call;
  } else if (request.stored != nullptr) {
    generation.record = request.stored->before;
  }
  return generation.record != nullptr;
}

// Checks that a retry is the same call, and takes the call over from an earlier try that is still
// running.
Status Admission::try_resume(Generation& generation) {
  const CallRecord& record = *generation.record;
  take_turn(generation.request, record.place);
  complete_prompt(generation.request, record.position);
  const GenerateRequest& request = generation.request;
  if (record.digest != generation.digest) return used_otherwise(request.request_id);
  if (record.whole) steps_.end_try(generation.record, made_again());
  // Ending the first try collects its launches, which may fill the record or reveal a failed
  // device.
  if (Status s = steps_.failure(); !s.ok()) return s;
  if (!record.whole) return too_long_to_resend();
  Session& session = *sessions_.find(key_of(request));
  if (!record.finished && !session.resting()) {
    return {Code::kAborted, "session '" + session.key.id + "' is busy; try again"};
  }
  if (session.last_call != generation.record) {
    if (Status s = take_stored(generation, session); !s.ok()) return s;
  }
  if (!record.finished && request.stored != nullptr) {
    // The call will add to its record, while a store may still be reading the existing one.
    Status copied = within_memory([&] {
      generation.record = std::make_shared<CallRecord>(record);
      return Status();
    });
    if (!copied.ok()) return copied;
    session.last_call = generation.record;
  }
  resume(generation, session);
  return {};
}

// Gives the session the record from its store. The record is checked, because it may be damaged or
// forged.
Status Admission::take_stored(const Generation& generation, Session& session) const {
  const GenerateRequest& request = generation.request;
  CallRecord& record = *generation.record;
  record.request_id = request.request_id;
  record.limit(options_.record_bytes, request.top_log_probs);
  if (std::ssize(record.values) > record.most) return too_long_to_resend();
  const auto given = static_cast<int64_t>(request.prompt.size());
  const int64_t most = request.max_values.value_or(options_.max_values);
  if (!record.leads_to(session.position, given, most, request.top_log_probs)) {
    return {Code::kDataLoss, "the stored values of this call do not lead to position " +
                                 std::to_string(session.position) + " of session " +
                                 quote(session.key.id) + ": continue from there, with another " +
                                 runnel::place_of(fields::kRequestId)};
  }
  session.last_call = generation.record;
  request.stored->before.reset();  // as with any record, only the session keeps it
  return {};
}

// Makes a generation continue where its record ends. The recorded values are sent first. If the
// recorded call had finished, the generation does not use the session.
void Admission::resume(Generation& generation, Session& session) {
  const GenerateRequest& request = generation.request;
  CallRecord& record = *generation.record;
  generation.samples.resize(1);
  Sample& sample = generation.samples[0];
  start_stream(generation, session, record.position, record.place);
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
}

// --- Score ---

void Admission::feed(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
                     ScoredChunk answers, std::function<void(Result<ScoredChunk>)> done) {
  const bool is_admitted = call->feed.session != nullptr;
  if (is_admitted) call->waited = call->waits(time_.now());
  call->done = std::move(done);
  if (call->over()) {  // the call ended while this message was on its way
    call->complete(*call->end, time_.now());
    return;
  }
  call->feed.values = std::move(values);
  call->scored = std::move(answers);
  if (is_admitted) {
    score(*call);
    return;
  }
  begin(call, false);
  if (call->done && call->accepted) call->accepted();  // otherwise the call has its answer
}

// Gives a Score call its slot and its first message, lets it wait, or refuses it. The result is as
// for go_on().
bool Admission::begin(const std::shared_ptr<ScoreCall>& call, bool has_waited) {
  const Result<Session*> session = open_scored(*call, has_waited);
  if (session.ok()) {
    call->scored.queued = note_queued(call->asked);
    steps_.start(call, **session);
    if (call->begin && (*session)->position == 0) put_begin(spec_.begin, call->feed.values);
    score(*call);
    return true;
  }
  Status status = session.status();
  if (has_waited && is_states_used_up(status)) return false;
  if (status.code() == Code::kResourceExhausted && !has_waited &&
      call->max_queue_time > Duration(0)) {
    status = waiting_room_.add(call);
  }
  if (!status.ok()) call->complete(std::move(status), time_.now());
  return true;
}

// The session of a Score call. With `keep`, this is the session that the call starts from,
// otherwise a new one with the same state.
Result<Session*> Admission::open_scored(const ScoreCall& call, bool has_waited) {
  const Result<Session*> source = resolve(call.origin, call.caller);
  if (!source.ok()) return source.status();
  const HeldSource held(sessions_, *source);
  const int64_t position = *source == nullptr ? 0 : (*source)->position;
  if (Status s = check_position(position, call.origin.expected_position); !s.ok()) return s;
  if (call.keep) {
    Session& session = **source;
    session.last_call.reset();  // the sequence grows, so that call can no longer be resent
    sessions_.set(session, {});
    return &session;
  }
  if (Status s = waiting_room_.take_room(1, call.caller, has_waited); !s.ok()) return s;
  Session& session = sessions_.open_anonymous(call.caller);
  if (*source == nullptr) {
    sessions_.reset(session);
  } else {
    start_from(**source, session);
  }
  return &session;
}

// Begins to score the values of a message.
void Admission::score(ScoreCall& call) {
  const int64_t position = call.feed.session->position;
  const int64_t values = std::ssize(call.feed.values);
  if (Status s = validate_length(position, values, fields::kValues, {spec_, call.origin.model});
      !s.ok()) {
    call.complete(std::move(s), time_.now());
    return;
  }
  steps_.score(call);
}

// --- Sessions by name ---

Result<SessionInfo> Admission::create_session(SessionKey key, const Caller& caller) {
  if (Status s = waiting_room_.check_kept(); !s.ok()) return s;
  return sessions_.create(std::move(key), caller, time_.now());
}

void Admission::hold_session(const SessionKey& key) {
  Session* const session = sessions_.find(key);
  if (session == nullptr) return;
  sessions_.hold(*session);
  session->saved_at.reset();
  session->idle_since = time_.now();  // it must not expire before the call comes
}

void Admission::mark_saved(const SessionKey& key, int64_t position) {
  Session* const session = sessions_.find(key);
  if (session == nullptr || !session->resting() || session->position != position) return;
  session->saved_at = position;
  sessions_.lend(*session);
}

Status Admission::delete_session(const SessionKey& key) {
  Session* session = sessions_.find(key);
  if (session == nullptr) return no_session(key.id, fields::kId);
  if (session->state == SessionPhase::kMoving) {
    Status busy(Code::kAborted, "the state of session '" + key.id + "' is being copied; try again");
    return busy.with_retry_after(std::chrono::milliseconds(100));
  }
  steps_.end_on(*session, {Code::kAborted, "session '" + key.id + "' was deleted"});
  sessions_.forget(*session);
  return {};
}

}  // namespace runnel
