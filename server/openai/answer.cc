#include "server/openai/answer.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/within_memory.h"
#include "server/calls/generate_call.h"
#include "server/calls/session_header.h"
#include "server/http/call_start.h"
#include "server/http/event_stream.h"
#include "server/http/live_answer.h"
#include "server/openai/choice.h"
#include "server/openai/sampling_fields.h"

namespace runnel {
namespace {

// Bytes of memory per byte of generated text: in the body of an answer, and before that in events.
constexpr int64_t kAnswerFactor = 8;
constexpr int64_t kEventFactor = 2;
constexpr int64_t kChoiceBytes = 256;  // of a choice without text

int64_t bytes_of_values(const AnswerPrompt& prompt) {
  return std::ssize(prompt.values) * static_cast<int64_t>(sizeof(int32_t)) +
         (prompt.turn ? bytes_of(*prompt.turn) : 0);
}

// How a part treats its events: it sends them, keeps them until the head of the answer is sent, or
// drops them because the answer has ended.
enum class Way { kOut, kHeld, kDropped };

class Answer;

// One prompt and its call. Only the thread that has the call's turn touches it, except for the
// members under the answer's mutex.
class Part final : public GenerateSink {
 public:
  // `owner` must outlive it.
  Part(Answer& owner, const HttpRequest& request);

  GenerateCall& call() { return *call_; }
  // From here on, the call is live, and keeps its Answer alive until it has finished.
  void enter();
  // Call before begin(). Returns the kind's fault, or RESOURCE_EXHAUSTED.
  Fault prepare(size_t index, AnswerKind& kind, const AnswerRequest& request,
                const TextInput& input);
  // Asks the engine, once.
  void begin(const std::shared_ptr<const ServedModel>& model, GenerateRequest call,
             const TokenUse& token);
  // The choices, if they are not streamed. Call after the end.
  std::string take_choices();
  AnswerUsage usage() const { return usage_; }
  // Sends the event that waited for the head of the answer.
  void send_held() { send(std::exchange(held_, "")); }
  bool holds() const { return !held_.empty(); }
  void drop_held() { held_.clear(); }
  // Notes that the part has a state or waits for one. Returns false if this was known.
  bool settle() { return !std::exchange(settled_, true); }
  void go_on() { call_->written(true); }
  // Continues later, because the call may be in the middle of its turn.
  void go_on_later();

 private:
  void write(const GenerateEvent& event) override;
  void begin_scores() override;
  void take_scores(const ScoredChunk& scores) override;
  void take_token(std::string token) override;
  void finish(const Status& status) override;
  void cut_off() override;

  void take(const Queued& queued);
  void take(const Started& started);
  void take(const SampledValues& values);
  void take(const Finished& finished);
  int64_t bytes_of_scores() const;
  void deliver(std::string events);
  void send(const std::string& events);
  std::shared_ptr<Part> self() { return {kept_, this}; }

  ServerContext& state_;
  Answer& answer_;
  std::shared_ptr<Answer> kept_;  // from enter() until the call has finished, on any thread
  AnswerPrompt prompt_;           // its values until begin(), or until they are scored
  const AnswerKind* kind_ = nullptr;
  bool stream_ = false;
  std::vector<std::string> stops_;
  std::vector<std::unique_ptr<AnswerChoice>> choices_;
  AnswerUsage usage_;
  std::string session_;
  std::string token_;  // until Finished, in base64
  MemoryBudget::Hold room_;
  // Under the answer's mutex.
  std::string held_;      // waits for the head of the answer
  bool settled_ = false;  // the part has a state or waits for one
  std::shared_ptr<GenerateCall> call_;
};

// All parts of one request. Its mutex is not held while it calls into a call, because calls call
// parts.
class Answer final : public std::enable_shared_from_this<Answer> {
 public:
  Answer(ServerContext& state, const char* rpc, std::unique_ptr<AnswerKind> kind, HttpReply reply)
      : state_(state), rpc_(rpc), reply_(std::move(reply)), kind_(std::move(kind)) {}

  void start(const HttpRequest& request);
  // The client has disconnected.
  void leave();
  // A part has finished, so it is another one's turn.
  void start_next();

  // --- Parts ---

  // A part's call scores its prompt, or waits for a state. May be called several times.
  void settle(Part& part);
  // A part's call has been admitted, and keeps its sequence as this session; "" if it keeps none.
  void started(Part& part, const std::string& session);
  // If the events must wait, they are moved to `held`.
  Way way_of(const std::string& events, std::string& held);
  void finished(const Status& status);

  ServerContext& state() { return state_; }
  const char* rpc() const { return rpc_; }
  HttpReply& reply() { return reply_; }

 private:
  Status submit(const HttpRequest& request);
  Status make_parts(const HttpRequest& request);
  size_t parts_at_once(const Caller& caller) const;
  bool take_turn();
  Part& enter_next();
  void start_part(Part& part);
  Status open(Fault fault);
  Status note(Fault fault);
  void end_all(const Status& status);
  void end_one();
  void answer();
  AnswerUsage usage() const;

  ServerContext& state_;
  const char* const rpc_;
  HttpReply reply_;
  AnswerRequest request_;
  std::shared_ptr<const ServedModel> model_;
  const std::unique_ptr<AnswerKind> kind_;
  MemoryBudget::Hold kept_;                   // of kind_
  std::vector<std::unique_ptr<Part>> parts_;  // all made before the first starts

  std::mutex mutex_;
  size_t turns_ = 0;       // parts that have had their turn, which are the first ones
  size_t entered_ = 0;     // of these, the parts whose calls are live or have ended
  size_t starting_ = 1;    // the parts that start at once, without the settled ones
  size_t running_ = 1;     // parts that had their turn and have not finished, and start()
  bool admitted_ = false;  // a part has been admitted
  bool begun_ = false;     // the head has been sent
  bool open_ = false;      // start() is done
  bool ended_ = false;     // every part that has entered was told to end
  Fault fault_;            // the first fault
};

// --- Part ---

Part::Part(Answer& owner, const HttpRequest& request)
    : state_(owner.state()),
      answer_(owner),
      call_(GenerateCall::make(state_, call_start(owner.rpc(), state_, request), *this)) {}

void Part::enter() {
  kept_ = answer_.shared_from_this();
  call_->enter();
}

Fault Part::prepare(size_t index, AnswerKind& kind, const AnswerRequest& request,
                    const TextInput& input) {
  const auto samples = static_cast<size_t>(request.call.samples);
  const int64_t bytes = request.call.samples * kChoiceBytes + kind.bytes_of_choices(index);
  if (Status s = state_.memory.grow(room_, bytes); !s.ok()) return {s};
  kind_ = &kind;
  stream_ = request.stream;
  if (Fault fault = kind.prepare(index, input, prompt_); !fault.ok()) return fault;
  stops_ = request.call.stop_text;
  std::ranges::move(prompt_.stop, std::back_inserter(stops_));
  for (size_t i = 0; i < samples; ++i) {
    choices_.push_back(kind.choice(index, static_cast<int>(index * samples + i), stops_));
  }
  return {state_.memory.grow(room_, bytes + bytes_of_values(prompt_) + bytes_of_scores())};
}

void Part::begin(const std::shared_ptr<const ServedModel>& model, GenerateRequest call,
                 const TokenUse& token) {
  const int64_t given = bytes_of_values(prompt_);
  call.turn = std::exchange(prompt_.turn, {});
  call.begin = prompt_.begin;
  call.shared = prompt_.shared;
  call.stop_text = stops_;
  call.end_of_turn = prompt_.end_of_turn;
  call.prompt = prompt_.scored ? prompt_.values : std::exchange(prompt_.values, {});
  call.tokenizer = model->tokenizer;
  call.delivery = state_.delivery;
  if (prompt_.scored) return call_->start_scored(model, std::move(call), *prompt_.scored);
  MemoryBudget::shrink(room_, room_.bytes() - given);  // from here on, the call counts them
  if (token.any()) return call_->start_with_token(model, std::move(call), token);
  call_->start(model, std::move(call));
}

// The bytes of the scores of the prompt's tokens, from the engine to the answer.
int64_t Part::bytes_of_scores() const {
  if (!prompt_.scored) return 0;
  const int64_t top = *prompt_.scored * static_cast<int64_t>(sizeof(TopLogProb));
  const int64_t in_choices =
      std::ssize(choices_) * kAnswerFactor * (static_cast<int64_t>(sizeof(ChoiceToken)) + top);
  return std::ssize(prompt_.values) * (static_cast<int64_t>(sizeof(float)) + top + in_choices);
}

// Scoring can take longer than other parts may hold their events.
void Part::begin_scores() { answer_.settle(*this); }

void Part::take_scores(const ScoredChunk& scores) {
  kind_->take_scores(std::exchange(prompt_.values, {}), scores, choices_);
}

void Part::take_token(std::string token) {
  token_ = base64({reinterpret_cast<const uint8_t*>(token.data()), token.size()});
}

void Part::go_on_later() { state_.writer.post<&Part::go_on>(self()); }

void Part::write(const GenerateEvent& event) {
  std::visit([this](const auto& what) { take(what); }, event);
}

void Part::take(const Queued& /*queued*/) {
  answer_.settle(*this);
  go_on_later();
}

void Part::take(const Started& started) {
  session_ = started.session;
  answer_.started(*this, session_);
  go_on_later();
}

void Part::take(const SampledValues& values) {
  std::string events;
  for (const ValueRun& run : values.runs) {
    AnswerChoice& choice = *choices_[static_cast<size_t>(run.sample)];
    const bool was_over = choice.is_over();
    choice.add(run);
    if (!was_over && choice.is_over()) call_->stop(run.sample);
    if (stream_) events += choice.events();
  }
  deliver(std::move(events));
}

void Part::take(const Finished& finished) {
  AnswerChoice& choice = *choices_[static_cast<size_t>(finished.sample)];
  choice.finish({finished.reason, session_, finished.position, std::exchange(token_, "")});
  usage_.prompt_tokens = finished.prompt_values;
  usage_.cached_tokens = finished.cached_values;
  usage_.completion_tokens += finished.sampled_values;
  usage_.reasoning_tokens += choice.reasoning_tokens();
  deliver(stream_ ? choice.events() : "");
}

// Reserves memory for `events` and for the text that the choices hold, and sends `events`. Without
// a stream there are no events, and the choices hold their text until the whole answer is made.
void Part::deliver(std::string events) {
  int64_t bytes = kEventFactor * std::ssize(events);
  for (const auto& choice : choices_) {
    bytes += kChoiceBytes + (stream_ ? 1 : kAnswerFactor) * choice->bytes();
  }
  MemoryBudget::shrink(room_, bytes);
  if (Status s = state_.memory.grow(room_, bytes); !s.ok()) {
    call_->refuse(s);
  } else if (!events.empty()) {
    return send(events);
  }
  go_on_later();
}

void Part::send(const std::string& events) {
  switch (answer_.way_of(events, held_)) {
    case Way::kHeld:
      return;
    case Way::kDropped:
      return go_on_later();
    case Way::kOut:
      break;
  }
  state_.metrics.sent.add(std::ssize(events));
  answer_.reply().write(events, [part = self()](bool taken) { part->call_->written(taken); });
}

void Part::finish(const Status& status) {
  const auto kept = std::exchange(kept_, nullptr);  // may be the last reference to this
  answer_.finished(status);
  call_->leave();
}

void Part::cut_off() {
  static_cast<void>(within_memory([this] {
    answer_.reply().abort();
    return Status();
  }));
}

std::string Part::take_choices() {
  std::string text;
  for (const auto& choice : choices_) text += (text.empty() ? "" : ",") + choice->whole();
  return text;
}

// --- Answer: the request ---

void Answer::start(const HttpRequest& request) {
  state_.metrics.received.add(std::ssize(request.body));
  reply_.on_gone([weak = weak_from_this()] {
    if (const auto answer = weak.lock()) answer->leave();
  });
  const Status status = within_memory([&] { return submit(request); });
  const Status end = open(kind_->fault(status));
  if (!end.ok()) end_all(end);
  end_one();
}

void Answer::leave() {
  const Status gone(Code::kCancelled, "the client has gone");
  static_cast<void>(note({gone}));
  end_all(gone);
}

// After an error, the caller must still end the calls that were made before it.
Status Answer::submit(const HttpRequest& request) {
  parts_.push_back(std::make_unique<Part>(*this, request));
  take_turn();
  Part& first = enter_next();
  if (Status s = first.call().admit(); !s.ok()) return s;
  const auto room = state_.memory.take(kind_->bytes_to_read(request.body));
  if (!room.ok()) return room.status();
  if (Status s = note(kind_->read(first.call().caller(), request.body, request_)); !s.ok())
    return s;
  const auto model = first.call().find_model(request_.model);
  if (!model.ok()) return note(kind_->fault(model.status()));
  model_ = *model;
  fit_top_k(model_->engine->spec(), request_.call.sampling);
  if (Status s = note(kind_->open(*model_, request_)); !s.ok()) return s;
  if (Status s = state_.memory.grow(kept_, kind_->bytes_kept()); !s.ok()) return s;
  if (Status s = make_parts(request); !s.ok()) return s;
  const size_t at_once = parts_at_once(first.call().caller());
  {
    std::lock_guard lock(mutex_);
    starting_ = at_once;
  }
  request_.call.model = request_.model;
  request_.call.max_queue_time = request_.max_queue_time.value_or(state_.http_queue_time);
  for (size_t i = 1; i < at_once; ++i) {
    if (!take_turn()) return note({});
    if (Status s = enter_next().call().admit(); !s.ok()) return s;
  }
  for (size_t i = 0; i < at_once; ++i) start_part(*parts_[i]);
  return {};
}

Status Answer::make_parts(const HttpRequest& request) {
  const TextInput input = state_.text_input(*model_, request_.model);
  parts_.reserve(kind_->prompts());
  while (parts_.size() < kind_->prompts()) parts_.push_back(std::make_unique<Part>(*this, request));
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (Status s = note(parts_[i]->prepare(i, *kind_, request_, input)); !s.ok()) return s;
  }
  return {};
}

// The number of prompts that may run together. The others get their turn as these finish.
size_t Answer::parts_at_once(const Caller& caller) const {
  const int64_t calls = caller.limits.calls.value_or(std::ssize(parts_));
  const int64_t all = model_->engine->stats().sessions - std::ssize(model_->states);
  const int64_t states = std::min(model_->engine->most_states(caller), all);
  const int64_t at_once = std::min(calls, states / request_.call.samples);
  return static_cast<size_t>(std::clamp<int64_t>(at_once, 1, std::ssize(parts_)));
}

// Gives the next part its turn, and counts it as running. Returns false if all parts have had their
// turn, or if the answer has failed.
bool Answer::take_turn() {
  std::lock_guard lock(mutex_);
  if (!fault_.ok() || turns_ == parts_.size()) return false;
  ++turns_;
  ++running_;
  return true;
}

// Call after take_turn(), on one thread at a time.
Part& Answer::enter_next() {
  Part& part = *parts_[entered_];
  part.enter();
  if (model_ != nullptr) part.call().set_model(model_);
  bool ended = false;
  {
    std::lock_guard lock(mutex_);
    ++entered_;
    ended = ended_;
  }
  if (ended) part.call().cancel();
  return part;
}

void Answer::start_part(Part& part) { part.begin(model_, request_.call, request_.token); }

void Answer::start_next() {
  Part& part = enter_next();
  const Status status = within_memory([&] {
    if (Status s = part.call().admit(); !s.ok()) return s;
    start_part(part);
    return Status();
  });
  if (!status.ok()) part.call().refuse(status);
}

// --- Answer: parts ---

void Answer::started(Part& part, const std::string& session) {
  {
    std::lock_guard lock(mutex_);
    const std::string& id = session.empty() ? request_.call.session.value_or("") : session;
    if (!id.empty() && !begun_ && fault_.ok()) reply_.set_header(kSessionHeader, id);
    admitted_ = true;
  }
  settle(part);
}

// Sends the head of a stream once every part that starts at once is settled, and one of them has
// been admitted. The head does not wait until all have been: a waiting part may need the state of
// an admitted one, which cannot end before its events are sent.
void Answer::settle(Part& part) {
  std::vector<Part*> holding;
  {
    std::lock_guard lock(mutex_);
    if (begun_ || !request_.stream || !fault_.ok()) return;
    if (part.settle()) --starting_;
    if (starting_ > 0 || !admitted_) return;
    begin_events(reply_);
    begun_ = true;
    for (const auto& other : parts_) {
      if (other->holds()) holding.push_back(other.get());
    }
  }
  for (Part* const other : holding) other->send_held();
}

Way Answer::way_of(const std::string& events, std::string& held) {
  std::lock_guard lock(mutex_);
  if (begun_) return Way::kOut;
  if (ended_) return Way::kDropped;
  held = events;
  return Way::kHeld;
}

void Answer::finished(const Status& status) {
  if (!status.ok()) {
    static_cast<void>(note(kind_->fault(status)));
    end_all({Code::kCancelled, "another prompt of the request could not be answered"});
  } else if (take_turn()) {
    state_.writer.post<&Answer::start_next>(shared_from_this());
  }
  end_one();
}

// Does what note() does, and from then on lets end_all() end the parts. A failure before this call
// is returned here, and a later one reaches end_all().
Status Answer::open(Fault fault) {
  std::lock_guard lock(mutex_);
  open_ = true;
  if (fault_.ok()) fault_ = std::move(fault);
  return fault_.status;
}

// Records `fault` unless the answer has already failed. Returns the status of the first fault.
Status Answer::note(Fault fault) {
  std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = std::move(fault);
  return fault_.status;
}

// Ends every running part, once. If parts have yet to start, start() does it.
void Answer::end_all(const Status& status) {
  std::vector<Part*> holding;
  size_t entered = 0;
  {
    std::lock_guard lock(mutex_);
    if (!open_ || std::exchange(ended_, true)) return;
    entered = entered_;
    for (const auto& part : parts_) {
      if (begun_ || !part->holds()) continue;
      part->drop_held();
      holding.push_back(part.get());
    }
  }
  for (size_t i = 0; i < entered; ++i) parts_[i]->call().refuse(status);
  for (Part* const part : holding) part->go_on_later();
}

void Answer::end_one() {
  {
    std::lock_guard lock(mutex_);
    if (--running_ > 0) return;
  }
  // Without memory for the answer the reply ends with 500, or cuts the stream off.
  static_cast<void>(within_memory([this] {
    answer();
    return Status();
  }));
}

void Answer::answer() {
  std::lock_guard lock(mutex_);
  std::string last;
  if (!fault_.ok() && !begun_) return send_fault(fault_, reply_);
  if (!fault_.ok()) {
    last = kind_->failure_events(fault_);
  } else if (request_.stream) {
    last = kind_->last_events(usage());
  } else {
    std::string choices;
    for (const auto& part : parts_) choices += (choices.empty() ? "" : ",") + part->take_choices();
    last = kind_->whole(choices, usage());
  }
  state_.metrics.sent.add(std::ssize(last));
  auto kept = live_answer(state_, shared_from_this());
  if (!request_.stream) {
    return reply_.send({200, "application/json", std::move(last)}, std::move(kept));
  }
  reply_.write(last, [kept = std::move(kept)](bool) {});
  reply_.end();
}

AnswerUsage Answer::usage() const {
  AnswerUsage sum;
  for (const auto& part : parts_) {
    sum.prompt_tokens += part->usage().prompt_tokens;
    sum.cached_tokens += part->usage().cached_tokens;
    sum.completion_tokens += part->usage().completion_tokens;
    sum.reasoning_tokens += part->usage().reasoning_tokens;
  }
  return sum;
}

}  // namespace

void start_answer(ServerContext& state, const char* rpc, std::unique_ptr<AnswerKind> kind,
                  const HttpRequest& request, HttpReply reply) {
  std::make_shared<Answer>(state, rpc, std::move(kind), std::move(reply))->start(request);
}

}  // namespace runnel
