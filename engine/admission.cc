// How calls come in: what each needs (sessions, slots, a place in its sequence), or why it is
// refused; and how their prompts turn into sampling.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"
#include "engine/validate.h"
#include "models/begin.h"
#include "models/text/tokenizer.h"

namespace runnel {

// --------------------------------------------------------------------------------------

void Scheduler::admit(GenerateRequest request, std::shared_ptr<TokenStream> stream) {
  auto generation = std::make_unique<Generation>();
  generation->request = std::move(request);
  generation->stream = std::move(stream);
  generation->admitted = now_;
  Status status = draining()                  ? draining_status()
                  : find_retried(*generation) ? try_resume(*generation)
                                              : try_admit(*generation);
  if (!status.ok()) {
    generation->stream->end(std::move(status));
    return;
  }
  generations_.push_back(std::move(generation));
  if (!generations_.back()->resend) begin_feeding(*generations_.back());
}

// Finds or makes the sessions of a generation's samples, or says why it cannot be.
Status Scheduler::try_admit(Generation& generation) {
  const GenerateRequest& request = generation.request;
  Result<Session*> source = source_of(generation);
  if (!source.ok()) return source.status();
  const int64_t position = *source == nullptr ? 0 : (*source)->position;
  const auto given = static_cast<int64_t>(request.prompt.size());
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
  generation.begins = nothing_known;
  if (!(*first)->key.id.empty()) {
    generation.record = request.request_id.empty() ? nullptr : std::make_shared<CallRecord>();
    (*first)->last_call = generation.record;
  }
  start_stream(generation, **first, position);
  if (generation.record) {
    const auto values = std::min(generation.samples[0].remaining, kMaxRecordedValues);
    generation.record->request = request;
    generation.record->position = position;
    generation.record->values.reserve(values);
    generation.record->top.reserve(values * request.top_log_probs);
  }
  return {};
}

// Sets what a stream begins with: how many values each sample may have, and Started.
void Scheduler::start_stream(Generation& generation, const Session& first, int64_t position) {
  const GenerateRequest& request = generation.request;
  const int64_t end = model_.spec().max_length();
  const int64_t given = position + static_cast<int64_t>(request.prompt.size());
  const int64_t left = end == 0 ? options_.max_values : end - given;
  for (Sample& sample : generation.samples) {
    sample.remaining = std::min(left, request.max_values.value_or(left));
    reserve_tails(request, sample);
  }
  generation.seed = *request.seed;
  generation.stream->start({.session = first.key.id,
                            .seed = generation.seed,
                            .position = position,
                            .numerics = model_.layout().numerics});
}

// True, with the record, when the request's id is that of the last call on its session.
bool Scheduler::find_retried(Generation& generation) {
  const GenerateRequest& request = generation.request;
  if (request.request_id.empty()) return false;
  const Session* session = sessions_.find(key_of(request));
  if (session == nullptr || session->last_call == nullptr) return false;
  if (session->last_call->request.request_id != request.request_id) return false;
  generation.record = session->last_call;
  return true;
}

// A call that was made before: its stream again, and then the rest of it.
Status Scheduler::try_resume(Generation& generation) {
  const GenerateRequest& request = generation.request;
  CallRecord& record = *generation.record;
  if (!(record.request == request)) {
    return invalid_argument("request_id '" + request.request_id +
                            "' was used for another request on this session: choose a new one");
  }
  if (!record.whole) {
    return {Code::kAborted, "the call was too long to be sent again: go on with a new request_id"};
  }
  for (const auto& other : generations_) {
    if (other->ended || other->record != generation.record) continue;
    end_generation(*other, {Code::kAborted, "the call was made again with the same request_id"});
  }
  resume(generation, *sessions_.find(key_of(request)));
  return {};
}

// Sets a generation to where its record stands.
void Scheduler::resume(Generation& generation, Session& session) {
  const GenerateRequest& request = generation.request;
  const CallRecord& record = *generation.record;
  generation.samples.resize(1);
  Sample& sample = generation.samples[0];
  start_stream(generation, session, record.position);
  generation.to_replay = record.values.size();
  generation.resend = record.finished.has_value();
  sample.finished = generation.resend;
  if (generation.resend) return;
  check(session.resting(), "nobody else runs on the session of this record");
  sample.session = &session;
  sample.sampled = static_cast<int64_t>(record.values.size());
  sample.remaining -= sample.sampled;
  const auto given = static_cast<int64_t>(request.prompt.size());
  generation.fed = std::min(session.position - record.position, given);
  generation.begins = session.position == 0 && request.prompt.empty();
  if (!request.may_stop()) return;
  auto from = record.values.end();  // back as far as a stop can reach; a value may have no bytes
  for (int64_t values = 0, bytes = 0; from != record.values.begin(); ++values) {
    if (values >= kMaxStopLength && (!request.tokenizer || bytes >= kMaxStopTextBytes)) break;
    --from;
    if (request.tokenizer) bytes += std::ssize(request.tokenizer->bytes(from->value));
  }
  for (; from != record.values.end(); ++from) watch_for_stop(request, from->value, sample);
}

// The session that a generation starts from; null for a fresh sequence.
Result<Session*> Scheduler::source_of(const Generation& generation) {
  const GenerateRequest& request = generation.request;
  if (!request.session) return static_cast<Session*>(nullptr);
  Session* source = sessions_.find({request.owner, *request.session});
  if (source == nullptr) {
    return not_found("no session '" + *request.session +
                     "': create it first, or leave the origin empty and set keep");
  }
  if (!source->resting()) {
    return Status(Code::kAborted, "session '" + *request.session +
                                      "' is busy with another call; wait until that one ends");
  }
  return source;
}

// One session for each sample; the first stands where the source stands.
Result<Session*> Scheduler::open_samples(Generation& generation, Session* source) {
  const GenerateRequest& request = generation.request;
  if (source == nullptr && sessions_.find(key_of(request)) != nullptr) {
    return Status(Code::kAlreadyExists,
                  "session '" + key_of(request).id + "' of request_id '" + request.request_id +
                      "' exists already and stands elsewhere than after this call: go on from the "
                      "session, or choose a new request_id");
  }
  const bool in_place = source != nullptr && request.keep.value_or(request.samples == 1);
  const int needed = request.samples - (in_place ? 1 : 0);
  if (needed > pool_.free()) return lease_refusal(needed);
  generation.samples.resize(request.samples);
  for (Sample& sample : generation.samples) {
    if (in_place) {
      sample.session = source;
      return source;  // keep goes with one sample
    }
    const SlotId slot = *pool_.lease();
    if (request.keep.value_or(false) && source == nullptr) {
      Session session;
      session.key = key_of(request);
      if (session.key.id.empty()) session.key = unused_key(request.owner);
      session.slot = slot;
      sample.session = sessions_.insert(std::move(session));
    } else {
      generation.ephemeral.push_back(std::make_unique<Session>());
      sample.session = generation.ephemeral.back().get();
      sample.session->slot = slot;
    }
  }
  Session& first = *generation.samples[0].session;
  if (source != nullptr) {
    copy_state(*source, first);
  } else {
    set_slot(first, {}, true);
  }
  return &first;
}

// Gives the first sample its prompt; where there is none to consume, sampling starts at once.
void Scheduler::begin_feeding(Generation& generation) {
  Session& session = *generation.samples[0].session;
  if (session.pending == kNoValue && !generation.request.prompt.empty()) {
    session.pending = generation.request.prompt[generation.fed++];
    ++session.position;
  }
  if (generation.unfed().empty()) {
    start_sampling(generation);
    return;
  }
  session.apply(SessionEvent::kFeed);
  set_slot(session, {}, false);
}

// The prompt is in. Copies its state to the other samples and lets all of them decode.
void Scheduler::start_sampling(Generation& generation) {
  generation.sampling = true;
  Session& first = *generation.samples[0].session;
  for (size_t i = 1; i < generation.samples.size(); ++i) {
    Session& other = *generation.samples[i].session;
    model_.copy(first.slot, other.slot);
    other.position = first.position;
    other.pending = first.pending;
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
    reason = take_value(generation, index, first, end, now_);
  }
  if (reason) {
    // What was given and not consumed stays with the session: its slot must know it.
    set_slot(session, {}, false);
    finish_sample(generation, index, *reason);
    return;
  }
  session.apply(SessionEvent::kSample);
  set_slot(session,
           {.seed = generation.seed,
            .stream = static_cast<uint32_t>(index),
            .remaining = sample.remaining,
            .sampling = generation.request.sampling,
            .top_log_probs = generation.request.top_log_probs},
           false);
}

void Scheduler::feed_score(std::shared_ptr<ScoreCall> call, std::vector<int32_t> values,
                           std::function<void(Result<ScoredChunk>)> done) {
  call->done = std::move(done);
  const bool runs = call->session != nullptr && !call->over();
  if (draining() && !runs) {
    call->complete(draining_status());
    return;
  }
  if (call->over()) {  // the chunk has crossed with the call's end, and its slot is another's
    call->complete(Status(Code::kCancelled, "the call had ended before this chunk came"));
    return;
  }
  if (call->session == nullptr) {
    if (Status s = open_score(*call); !s.ok()) {
      call->complete(std::move(s));
      return;
    }
    scores_.push_back(call);
  }
  Session& session = *call->session;
  const auto given = static_cast<int64_t>(values.size());
  if (Status s = validate_length(session.position, given, model_.spec()); !s.ok()) {
    call->complete(std::move(s));
    return;
  }
  call->values = std::move(values);
  call->fed = 0;
  call->came = now_;
  if (session.pending == kNoValue && given > 0) {
    session.pending = call->values[call->fed++];
    ++session.position;
    set_slot(session, {}, false);
  }
  call->scored = {.position = session.position, .log_probs = {}};
  call->scored.log_probs.reserve(call->values.size());
  if (call->unfed().empty()) call->complete(std::move(call->scored));
}

// A slot of its own for a Score call, standing where its origin stands.
Status Scheduler::open_score(ScoreCall& call) {
  Session* source = nullptr;
  if (call.origin) {
    source = sessions_.find({call.owner, *call.origin});
    if (source == nullptr) return not_found("no session '" + *call.origin + "'");
    if (!source->resting()) {
      return {Code::kAborted, "session '" + *call.origin + "' is busy with another call"};
    }
  }
  if (pool_.free() == 0) return lease_refusal(1);
  call.session = std::make_unique<Session>();
  call.session->slot = *pool_.lease();
  if (source != nullptr) {
    copy_state(*source, *call.session);
  } else {
    set_slot(*call.session, {}, true);
  }
  call.session->apply(SessionEvent::kFeed);
  return {};
}

}  // namespace runnel
