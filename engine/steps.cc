#include "engine/steps.h"

#include <algorithm>
#include <utility>

#include "engine/refusals.h"
#include "models/begin.h"

namespace runnel {

Steps::Steps(Model& model, const EngineOptions& options, Sessions& sessions, TurnClock& time,
             EngineMetrics& metrics, std::function<void(const Status&)> on_failure)
    : model_(model),
      options_(options),
      sessions_(sessions),
      time_(time),
      metrics_(metrics),
      limits_(model.limits()),
      on_failure_(std::move(on_failure)),
      turns_(limits_.slots),
      launches_(model, time, metrics),
      pace_(options.prompt_slowdown, limits_.chunk),
      gaps_(metrics.value_gap) {
  const auto rows = static_cast<size_t>(limits_.rows);
  // Each candidate has a slot of its own.
  const auto candidates = static_cast<size_t>(limits_.slots);
  candidates_.reserve(candidates);
  subjects_.reserve(candidates);
  plan_.shares.reserve(rows);
  plan_.waiting.reserve(candidates);
  plan_.places.reserve(candidates);
}

Status Steps::failure() const {
  return failed_.load(std::memory_order_acquire) ? failure_ : Status();
}

int Steps::active_calls() const {
  return static_cast<int>(generations_.size() + scores_.size() + refeeds_.size());
}

// --- Generations: from prompt to samples ---

void Steps::start(std::unique_ptr<Generation> generation) {
  generation->turns = turns_.join(generation->request.caller);
  generation->served = turns_.last_share();
  generations_.push_back(std::move(generation));
  Generation& started = *generations_.back();
  if (started.phase == GenerationPhase::kAdmitted) {
    begin_feeding(started);
  } else if (!started.samples[0].finished) {
    start_sample(started, 0);
  }
}

// Gives the first sample its prompt. If there is nothing to consume, sampling starts at once.
void Steps::begin_feeding(Generation& generation) {
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

// Records what the session of the first sample has consumed of its prompt, and keeps its state
// where later prompts are likely to differ from this one.
void Steps::keep_prefix(Generation& generation) {
  if (!generation.prefix) return;
  PrefixKey& prefix = *generation.prefix;
  const auto from = static_cast<size_t>(prefix.length);
  const size_t consumed = generation.fed - 1;  // the last value is pending
  sessions_.prefixes().cache().extend(
      prefix, std::span(generation.request.prompt).subspan(from, consumed - from));
  if (prefix.length != generation.keep_at) return;
  sessions_.prefixes().keep(prefix, generation.samples[0].session->slot, time_.now(),
                            generation.worth_of(PrefixWorth::kPrompt));
}

// Copies the state after the prompt to the other samples and lets all of them decode.
void Steps::start_sampling(Generation& generation) {
  generation.apply(GenerationEvent::kSample);
  const Session& first = *generation.samples[0].session;
  for (size_t i = 1; i < generation.samples.size(); ++i) {
    sessions_.copy(first, *generation.samples[i].session);
  }
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    start_sample(generation, static_cast<int>(i));
  }
}

void Steps::start_sample(Generation& generation, int index) {
  Sample& sample = generation.samples[index];
  Session& session = *sample.session;
  const int64_t end = model_.spec().max_length();
  const int64_t from = session.position - sample.sampled;  // a retry has sampled some already
  std::optional<FinishReason> reason;
  if (sample.remaining == 0) {
    reason = session.position == end && end != 0 ? FinishReason::kEnd : FinishReason::kLength;
  } else if (generation.begins) {
    Emitted first;
    first.value = begin_value(*model_.spec().begin, generation.seed, index);
    reason = take_value(generation, index, first, model_.spec(), time_.now());
    sessions_.rewinds().note(session, {&first.value, 1});
  }
  if (reason) {
    // The session keeps a value that was given but not consumed, so its slot must have it.
    sessions_.set(session, {});
    finish_sample(generation, index, *reason);
    return;
  }
  sample.served = turns_.last_share();
  sessions_.apply(session, SessionEvent::kSample);
  const GenerateRequest& request = generation.request;
  sessions_.set(session,
                {.seed = generation.seed,
                 .stream = static_cast<uint32_t>(index),
                 .remaining = sample.remaining,
                 .sampling = request.sampling,
                 .top_log_probs = request.top_log_probs},
                {.penalties = request.penalties, .from = from});
}

// --- Given values: Score calls and rewinds ---

void Steps::start(const std::shared_ptr<ScoreCall>& call, Session& session) {
  sessions_.apply(session, SessionEvent::kFeed);
  call->feed.session = &session;
  call->feed.turns = turns_.join(call->caller);
  call->admitted.store(true, std::memory_order_release);
  scores_.push_back(call);
}

void Steps::score(ScoreCall& call) {
  begin(call.feed);
  call.scored.position = call.feed.session->position;
  if (call.feed.unfed().empty()) call.complete(std::move(call.scored), time_.now());
}

void Steps::feed_again(Session& session, std::vector<int32_t> values, const Caller& caller,
                       std::function<void(const Status&)> done) {
  sessions_.apply(session, SessionEvent::kFeed);
  sessions_.set(session, {});
  refeeds_.push_back(std::make_unique<Refeed>());
  Refeed& refeed = *refeeds_.back();
  refeed.feed.session = &session;
  refeed.feed.turns = turns_.join(caller);
  refeed.feed.values = std::move(values);
  refeed.done = std::move(done);
  begin(refeed.feed);
  if (refeed.feed.unfed().empty()) end(refeed, {});
}

// A session without a known value takes the first value of a feed as its pending one, without a
// step.
void Steps::begin(Feed& feed) {
  feed.fed = 0;
  feed.came = time_.now();
  feed.served = turns_.last_share();
  Session& session = *feed.session;
  if (session.pending != kNoValue || feed.values.empty()) return;
  sessions_.know(session, feed.unfed().first(1));
  ++feed.fed;
  sessions_.set(session, {});
}

// --- Candidates ---

void Steps::gather() {
  turns_.begin_plan();
  candidates_.clear();
  subjects_.clear();
  sessions_.rewinds().begin_turn();
  const TimePoint now = time_.now();
  for (const auto& generation : generations_) {
    if (generation->phase == GenerationPhase::kResending) resend_recorded(*generation);
    if (turns_.is_ahead(*generation->turns, now)) continue;
    if (generation->phase == GenerationPhase::kPrompting) {
      gather_fed({.generation = generation.get()}, Want::kNothing, generation->admitted);
    }
    if (generation->phase == GenerationPhase::kSampling) gather_samples(*generation);
  }
  for (const auto& call : scores_) {
    const Feed& feed = call->feed;
    if (feed.unfed().empty() || turns_.is_ahead(*feed.turns, now)) continue;
    gather_fed({.score = call.get()}, Want::kScores, feed.came);
  }
  for (const auto& refeed : refeeds_) {
    if (refeed->over() || turns_.is_ahead(*refeed->feed.turns, now)) continue;
    gather_fed({.refeed = refeed.get()}, Want::kNothing, refeed->feed.came);
  }
}

// Sends a retry the values of the earlier try. After the last value, the retry samples, or ends as
// that try did.
void Steps::resend_recorded(Generation& generation) {
  if (!resend(generation, time_.now())) {
    note_stall(generation);
    return;
  }
  generation.stalled_since.reset();
  if (!generation.record->finished) {
    generation.apply(GenerationEvent::kSample);
    return;
  }
  generation.apply(GenerationEvent::kEnd);
  generation.stream->finish(*generation.record->finished);
  generation.stream->end({});
}

void Steps::gather_fed(const Subject& subject, Want want, TimePoint since) {
  const Session& session = subject.session();
  Rewinds& rewinds = sessions_.rewinds();
  if (!rewinds.ready(session)) return;
  const int64_t most = std::min(rewinds.most_inputs(session), subject.most_inputs());
  candidates_.push_back({.want = want,
                         .account = turns_.index_of(subject.turns()),
                         .served = subject.served(want),
                         .inputs = most,
                         .position = session.position - 1,
                         .since = since});
  subjects_.push_back(subject);
}

void Steps::gather_samples(Generation& generation) {
  const int ahead = generation.ahead();
  const int room = (generation.stream->room() - ahead) / generation.live_samples();
  if (room == 0) {
    if (ahead == 0) note_stall(generation);
    return;
  }
  generation.stalled_since.reset();
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    const Sample& sample = generation.samples[i];
    if (sample.finished || sample.remaining <= sample.ahead) continue;
    if (!sessions_.rewinds().ready(*sample.session)) continue;
    candidates_.push_back({.want = Want::kNext,
                           .account = turns_.index_of(*generation.turns),
                           .served = sample.served,
                           .inputs = 1,
                           .room = room,
                           .single_step = generation.may_stop(model_.spec())});
    subjects_.push_back({.generation = &generation, .index = static_cast<int>(i)});
  }
}

// The stream has no room: the generation pauses until its reader makes some.
void Steps::note_stall(Generation& generation) {
  if (!generation.stalled_since) generation.stalled_since = time_.now();
  generation.stream->starve();
}

// Records who has a share of this plan, for the turns of the next plan.
void Steps::note_served() {
  for (const Share& share : plan_.shares) {
    const Subject& subject = subjects_[share.candidate];
    const Want want = candidates_[share.candidate].want;
    subject.served(want) = turns_.give_share(subject.turns(), want != Want::kNext);
  }
}

// --- The step ---

bool Steps::step() {
  gather();
  plan_decoding(candidates_, turns_.accounts(), limits_, plan_);
  // The pace depends on the rows of the step, of which there may be far fewer than candidates.
  plan_feeding(candidates_, turns_.accounts(), limits_, pace_.most(plan_.decoding), plan_);
  note_served();
  const bool has_rows = !plan_.shares.empty();
  const bool steps = has_rows || launches_.on_their_way() > 0;
  if (has_rows) submit();
  settle(may_stay_on_its_way() ? limits_.launches - 1 : 0);
  return steps;
}

// Submits the plan, after the launches in flight.
void Steps::submit() {
  for (const Share& share : plan_.shares) {
    const Subject& subject = subjects_[share.candidate];
    const Want want = candidates_[share.candidate].want;
    if (want == Want::kNext) subject.sample().ahead += plan_.steps;
    launches_.add(subject, want, share.inputs);
  }
  launches_.submit(plan_.steps);
}

// Whether the next turn can be planned without the values of this plan. It cannot if prompts
// advance, a value may end a sample, or snapshots are taken between steps.
bool Steps::may_stay_on_its_way() const {
  const auto only_samples = [](const Candidate& candidate) {
    return candidate.want == Want::kNext && !candidate.single_step;
  };
  return !plan_.shares.empty() && !sessions_.rewinds().on() &&
         std::ranges::all_of(candidates_, only_samples);
}

// Hands out the values of all launches in flight except the last `but`.
void Steps::settle(int but) {
  while (launches_.on_their_way() > but) {
    if (Status s = launches_.collect(); !s.ok()) return fail(s);
    const Launch& launch = launches_.collected();
    pace_.note(launch.decoding, launch.fed, launch.took);
    hand_out(launch);
  }
}

void Steps::fail(const Status& reason) {
  failure_ = device_failed(model_.spec().name, reason);
  failed_.store(true, std::memory_order_release);
  on_failure_(failure_);
}

void Steps::hand_out(const Launch& launch) {
  for (const Launch::Part& part : launch.parts) {
    if (part.want == Want::kNext) part.subject.sample().ahead -= launch.steps;
  }
  for (const Emitted& emitted : launches_.emitted()) {
    hand_out(launch.parts[emitted.row].subject, emitted);
  }
  gaps_.count();
  for (const Launch::Part& part : launch.parts) {
    if (part.want != Want::kNext) advance(part.subject, part.inputs);
  }
}

void Steps::hand_out(const Subject& subject, const Emitted& emitted) {
  if (subject.score != nullptr) {
    ScoredChunk& scored = subject.score->scored;  // memory for this was reserved with the message
    scored.log_probs.push_back(emitted.log_prob);
    scored.top.insert(scored.top.end(), emitted.top.begin(), emitted.top.end());
    return;
  }
  const TimePoint now = time_.now();
  metrics_.values_sampled.add();
  Sample& sample = subject.sample();
  if (sample.last_value) gaps_.note(now - *sample.last_value);
  if (!sample.first_value) sample.first_value = now;
  sample.last_value = now;
  subject.turns().charge(1, now);
  Generation& generation = *subject.generation;
  if (generation.keeps_answer()) {
    sessions_.prefixes().cache().extend(*generation.prefix, {&sample.session->pending, 1});
  }
  const auto reason = take_value(generation, subject.index, emitted, model_.spec(), now);
  sessions_.rewinds().note(*sample.session, {&emitted.value, 1});
  if (reason) finish_sample(generation, subject.index, *reason);
}

// Counts `inputs` more of the given values as consumed by a session.
void Steps::advance(const Subject& subject, int inputs) {
  metrics_.values_consumed.add(inputs);
  subject.turns().charge(inputs, time_.now());
  sessions_.know(subject.session(), subject.unfed().first(inputs));
  subject.feed(inputs);
  if (subject.generation != nullptr) keep_prefix(*subject.generation);
  if (!subject.unfed().empty()) return;
  if (subject.score != nullptr) {
    subject.score->complete(std::move(subject.score->scored), time_.now());
  } else if (subject.refeed != nullptr) {
    end(*subject.refeed, {});
  } else {
    start_sampling(*subject.generation);
  }
}

// --- Endings ---

void Steps::end_try(const std::shared_ptr<CallRecord>& record, const Status& status) {
  for (const auto& generation : generations_) {
    if (generation->ended() || generation->record != record) continue;
    end(*generation, status);
    generation->record.reset();
  }
}

void Steps::end_on(const Session& session, const Status& status) {
  for (const auto& generation : generations_) {
    if (!generation->ended() && generation->samples[0].session == &session) {
      end(*generation, status);
    }
  }
  for (const auto& call : scores_) {
    if (call->feed.session == &session) end(*call, status);
  }
  for (const auto& refeed : refeeds_) {
    if (refeed->feed.session == &session) end(*refeed, status);
  }
}

void Steps::end_due() {
  for (const auto& generation : generations_) {
    if (!generation->ended()) end_if_due(*generation);
  }
  for (const auto& call : scores_) end_if_due(*call);
  forget_ended();
}

void Steps::end_all(const Status& status) {
  for (const auto& generation : generations_) end(*generation, status);
  for (const auto& call : scores_) end(*call, status);
  for (const auto& refeed : refeeds_) end(*refeed, status);
}

void Steps::end_if_due(Generation& generation) {
  if (generation.stream->cancelled()) {
    end(generation, {Code::kCancelled, "the call was cancelled"});
    return;
  }
  const TimePoint now = time_.now();
  // The room is checked again, because the client may have read values since gather() checked it.
  if (generation.stalled_since && now - *generation.stalled_since >= options_.stall_timeout &&
      generation.stream->room() < std::max(1, generation.live_samples())) {
    end(generation, {Code::kAborted,
                     "the stream was not read for too long; the sequence stands at the last value "
                     "sampled"});
    return;
  }
  // The rest of a record is sent even after the time limit. But if the session has released the
  // record, the call ends, because nothing counts the memory of the record any more.
  if (generation.phase == GenerationPhase::kResending) {
    if (generation.record.use_count() > 1) return;
    end(generation, {Code::kAborted,
                     "the session has ended, or has gone on with another call, before all of this "
                     "one was sent again"});
    return;
  }
  std::vector<int> stopped;
  if (generation.phase == GenerationPhase::kSampling) stopped = generation.stream->take_stopped();
  const auto max_time = generation.request.max_time;
  const bool is_late = max_time && now - generation.admitted >= *max_time;
  if (!is_late && stopped.empty()) return;
  settle(0);
  for (int i = 0; i < std::ssize(generation.samples) && !generation.ended(); ++i) {
    const bool is_stopped = std::ranges::count(stopped, i) > 0;
    if (generation.samples[i].finished || (!is_late && !is_stopped)) continue;
    finish_sample(generation, i, is_stopped ? FinishReason::kStop : FinishReason::kTime);
  }
}

void Steps::end_if_due(ScoreCall& call) {
  if (call.over()) return;
  if (call.cancelled.load(std::memory_order_acquire)) {
    end(call, {Code::kCancelled, "the call was cancelled"});
  } else if (call.waits(time_.now()) >= options_.idle_timeout) {
    end(call, {Code::kAborted,
               "the call has waited for messages for too long in all; send them sooner, or start "
               "a new call from a session"});
  }
}

void Steps::finish_sample(Generation& generation, int index, FinishReason reason) {
  Sample& sample = generation.samples[index];
  sample.finished = true;
  std::optional<Duration> first;
  if (sample.first_value) first = *sample.first_value - generation.admitted;
  const Finished finished = {.sample = index,
                             .reason = reason,
                             .prompt_values = static_cast<int64_t>(generation.fed),
                             .cached_values = generation.cached,
                             .sampled_values = sample.sampled,
                             .position = sample.session->position,
                             .elapsed = time_.now() - generation.admitted,
                             .first_value = first};
  // Frees the slot before the client learns of the end, because it may call again at once.
  sessions_.give_back(*std::exchange(sample.session, nullptr), time_.now(), generation.answered(),
                      generation.worth_of(PrefixWorth::kAnswer));
  if (generation.record) {
    generation.record->finished = finished;
    generation.record->shrink();
  }
  generation.stream->finish(finished);
  if (generation.live_samples() > 0) return;
  generation.apply(GenerationEvent::kEnd);
  generation.stream->end({});
}

void Steps::end(Generation& generation, const Status& status) {
  if (generation.ended()) return;
  settle(0);
  if (generation.ended()) return;
  for (Sample& sample : generation.samples) {
    if (sample.session != nullptr) give_back(sample.session);
  }
  if (generation.record) generation.record->shrink();
  generation.apply(GenerationEvent::kEnd);
  generation.stream->end(status);
}

void Steps::end(ScoreCall& call, const Status& status) {
  if (call.over()) return;
  give_back(call.feed.session);
  call.finish(status, time_.now());
}

void Steps::end(Refeed& refeed, const Status& status) {
  if (refeed.over()) return;
  give_back(refeed.feed.session);
  refeed.done(status);
}

// Ends a call's use of its session.
void Steps::give_back(Session*& session) {
  sessions_.give_back(*std::exchange(session, nullptr), time_.now());
}

void Steps::finish_turn() {
  for (const auto& generation : generations_) generation->stream->flush(time_.now());
  forget_ended();
}

void Steps::forget_ended() {
  std::erase_if(generations_, [](const auto& generation) { return generation->ended(); });
  std::erase_if(scores_, [](const auto& call) { return call->over(); });
  std::erase_if(refeeds_, [](const auto& refeed) { return refeed->over(); });
  turns_.forget_unused();
}

}  // namespace runnel
