#include "server/openai/completion.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "base/within_memory.h"
#include "server/generate_call.h"
#include "server/openai/choice.h"
#include "server/openai/completion_json.h"
#include "server/openai/completion_request.h"
#include "server/openai/event_stream.h"
#include "server/openai/live_answer.h"
#include "server/openai/origin.h"
#include "server/openai/request_fields.h"

namespace runnel {
namespace {

constexpr const char* kMethod = "openai.completions";
// What choices take as the text of an answer, and on the way to it, in bytes that they have.
constexpr int64_t kAnswerFactor = 8;
constexpr int64_t kEventFactor = 2;
constexpr int64_t kChoiceBytes = 256;                  // of a choice without text
constexpr auto kTokenizing = std::chrono::seconds(2);  // of all prompts, on a thread of the door

// Bytes that echo_of() may have.
int64_t echo_bytes(const CompletionPrompt& prompt, const Tokenizer* tokenizer) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return std::ssize(*text);
  if (tokenizer == nullptr) return 0;
  return std::ssize(std::get<std::vector<int32_t>>(prompt)) * tokenizer->longest();
}

// The text of a prompt, for a choice that begins with it.
std::string echo_of(const CompletionPrompt& prompt, const Tokenizer* tokenizer) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  std::string text;
  if (tokenizer == nullptr) return text;
  Utf8Stream characters;
  for (const int32_t value : std::get<std::vector<int32_t>>(prompt)) {
    characters.add(tokenizer->bytes(value), text);
  }
  characters.end(text);
  return text;
}

Result<std::vector<int32_t>> values_of(CompletionPrompt prompt, const TextInput& input) {
  const auto* text = std::get_if<std::string>(&prompt);
  if (text == nullptr) return std::get<std::vector<int32_t>>(std::move(prompt));
  if (text->empty()) return std::vector<int32_t>();
  return values_of_text(*text, input);
}

// What becomes of a part's events: they go out, wait for the head of the answer, or come too late.
enum class Way { kOut, kHeld, kDropped };

class Completion;

// One prompt and its call. Only the thread that has the call's turn touches it, but for `held`.
class Part final : public GenerateSink {
 public:
  Part(std::shared_ptr<Completion> owner, int first_choice, const HttpRequest& request);

  GenerateCall& call() { return *call_; }
  // Before the call starts. RESOURCE_EXHAUSTED.
  Status prepare(const CompletionPrompt& prompt, const CompletionFormat& format,
                 const CompletionRequest& request);
  // The choices, where they are not streamed; after the end.
  std::string take_choices();
  CompletionUsage usage() const { return usage_; }
  // Sends the event that waited for the head of the answer.
  void send_held() { send(std::exchange(held_, "")); }
  bool holds() const { return !held_.empty(); }
  void drop_held() { held_.clear(); }
  void go_on() { call_->written(true); }
  // Later, because the call may be in the middle of its turn.
  void go_on_later();

 private:
  void write(const GenerateEvent& event) override;
  void finish(const Status& status) override;
  void cut_off() override;

  void take(const Queued&) { go_on_later(); }
  void take(const Started& started);
  void take(const SampledValues& values);
  void take(const Finished& finished);
  void deliver(std::string events);
  void send(const std::string& events);
  std::shared_ptr<Part> self() { return {completion_, this}; }

  ServerState& state_;
  std::shared_ptr<Completion> completion_;  // until the call has finished, on any thread
  const int first_choice_;
  const CompletionFormat* format_ = nullptr;
  bool stream_ = false;
  std::vector<std::string> stops_;
  std::vector<CompletionChoice> choices_;
  std::vector<ChoiceEnd> ends_;  // by choice
  CompletionUsage usage_;
  std::string session_;
  MemoryBudget::Hold room_;
  std::string held_;  // with the completion's mutex: waits for the head of the answer
  std::shared_ptr<GenerateCall> call_;
};

// All parts of one request. Its mutex is not held while a call is told anything: calls tell parts.
class Completion final : public std::enable_shared_from_this<Completion> {
 public:
  Completion(ServerState& state, HttpReply reply) : state_(state), reply_(std::move(reply)) {}

  void start(const HttpRequest& request);
  // The client has gone.
  void leave();

  // --- Parts ---

  // A part's call has been admitted.
  void started();
  // Where they are to wait they are kept in `held`.
  Way way_of(const std::string& events, std::string& held);
  void finished(const Status& status);

  ServerState& state() { return state_; }
  HttpReply& reply() { return reply_; }

 private:
  Status submit(const HttpRequest& request);
  Status read(const HttpRequest& request);
  Status open_parts(const HttpRequest& request);
  Status start_part(size_t index, const std::shared_ptr<const ServedModel>& model,
                    const TextInput& input);
  Part& add_part(const HttpRequest& request);
  Status open(Fault fault);
  Status note(Fault fault);
  void end_all(const Status& status);
  void end_one();
  void answer();
  CompletionUsage usage() const;

  ServerState& state_;
  HttpReply reply_;
  CompletionRequest request_;
  std::optional<CompletionFormat> format_;
  std::vector<std::unique_ptr<Part>> parts_;  // all made before the first starts

  std::mutex mutex_;
  size_t starting_ = 0;  // parts that have not been admitted
  size_t running_ = 1;   // parts that have not finished, and start()
  bool begun_ = false;   // the head has been sent
  bool open_ = false;    // start() is done: there are no more parts to come
  bool ended_ = false;   // every part has been told to end
  Fault fault_;          // the first
};

// --- Part ---

Part::Part(std::shared_ptr<Completion> owner, int first_choice, const HttpRequest& request)
    : state_(owner->state()),
      completion_(std::move(owner)),
      first_choice_(first_choice),
      call_(GenerateCall::make(state_, origin_of(kMethod, state_, request), *this)) {}

Status Part::prepare(const CompletionPrompt& prompt, const CompletionFormat& format,
                     const CompletionRequest& request) {
  const int64_t echo = request.echo ? echo_bytes(prompt, format.tokenizer()) : 0;
  const int64_t bytes = request.call.samples * (kChoiceBytes + echo) + echo;
  if (Status s = state_.memory.grow(room_, bytes); !s.ok()) return s;
  format_ = &format;
  stream_ = request.stream;
  stops_ = request.call.stop_text;
  const auto samples = static_cast<size_t>(request.call.samples);
  choices_.reserve(samples);
  for (size_t i = 0; i < samples; ++i) choices_.emplace_back(stops_, format.wants_tokens());
  ends_.resize(samples);
  if (!request.echo) return {};
  const std::string text = echo_of(prompt, format.tokenizer());
  for (CompletionChoice& choice : choices_) choice.begin(text);
  return {};
}

void Part::go_on_later() { state_.writer.post<&Part::go_on>(self()); }

void Part::write(const GenerateEvent& event) {
  std::visit([this](const auto& what) { take(what); }, event);
}

void Part::take(const Started& started) {
  session_ = started.session;
  completion_->started();
  go_on_later();
}

void Part::take(const SampledValues& values) {
  std::string events;
  for (const ValueRun& run : values.runs) {
    CompletionChoice& choice = choices_[static_cast<size_t>(run.sample)];
    choice.add(run);
    if (!stream_) continue;
    const ChoicePart part = choice.take();
    if (part.empty()) continue;
    events += format_->chunk(format_->choice(first_choice_ + run.sample, part, nullptr));
  }
  deliver(std::move(events));
}

void Part::take(const Finished& finished) {
  const auto sample = static_cast<size_t>(finished.sample);
  usage_.prompt_tokens = finished.prompt_values;
  usage_.completion_tokens += finished.sampled_values;
  ends_[sample] = {finished.reason, session_, finished.position};
  choices_[sample].finish();
  std::string events;
  if (stream_) {
    events = format_->chunk(
        format_->choice(first_choice_ + finished.sample, choices_[sample].take(), &ends_[sample]));
  }
  deliver(std::move(events));
}

// Sends `events`, or keeps what the choices have for the whole answer.
void Part::deliver(std::string events) {
  int64_t bytes = kEventFactor * std::ssize(events);
  for (const CompletionChoice& choice : choices_) {
    bytes += kChoiceBytes + (stream_ ? 1 : kAnswerFactor) * choice.bytes();
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
  switch (completion_->way_of(events, held_)) {
    case Way::kHeld:
      return;
    case Way::kDropped:
      return go_on_later();
    case Way::kOut:
      break;
  }
  state_.metrics.sent.add(std::ssize(events));
  completion_->reply().write(events, [part = self()](bool taken) { part->call_->written(taken); });
}

void Part::finish(const Status& status) {
  const auto completion = std::exchange(completion_, nullptr);  // may be the last that keeps this
  completion->finished(status);
  call_->leave();
}

void Part::cut_off() {
  static_cast<void>(within_memory([this] {
    completion_->reply().abort();
    return Status();
  }));
}

std::string Part::take_choices() {
  std::string text;
  for (size_t i = 0; i < choices_.size(); ++i) {
    text += i == 0 ? "" : ",";
    text += format_->choice(first_choice_ + static_cast<int>(i), choices_[i].take(), &ends_[i]);
  }
  return text;
}

// --- Completion: the request ---

void Completion::start(const HttpRequest& request) {
  state_.metrics.received.add(std::ssize(request.body));
  reply_.on_gone([weak = weak_from_this()] {
    if (const auto completion = weak.lock()) completion->leave();
  });
  const Status status = within_memory([&] { return submit(request); });
  const Status end = open(fault_of(status));
  if (!end.ok()) end_all(end);
  end_one();
}

void Completion::leave() {
  const Status gone(Code::kCancelled, "the client has gone");
  static_cast<void>(note({gone}));
  end_all(gone);
}

// Not OK: the calls that there are by now are still to be refused.
Status Completion::submit(const HttpRequest& request) {
  Part& first = add_part(request);
  if (Status s = first.call().admit(); !s.ok()) return s;
  const auto room = state_.memory.take(parsed_bytes(request.body));
  if (!room.ok()) return room.status();
  if (Status s = read(request); !s.ok()) return s;
  const auto model = state_.models.find(first.call().caller(), request_.model);
  if (!model.ok()) return note({model.status(), "model"});
  const bool has_text = (*model)->tokenizer != nullptr;
  format_.emplace(CompletionFormat::Options{.model = (*model)->name,
                                            .numerics = (*model)->engine->numerics(),
                                            .tokenizer = (*model)->tokenizer,
                                            .logprobs = request_.logprobs,
                                            .token_ids = request_.return_token_ids || !has_text,
                                            .usage_last = request_.include_usage});
  if (Status s = open_parts(request); !s.ok()) return s;
  TextInput input = state_.text_input(**model);
  input.until = std::chrono::steady_clock::now() + kTokenizing;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (Status s = start_part(i, *model, input); !s.ok()) return s;
  }
  return {};
}

Status Completion::read(const HttpRequest& request) {
  const Result<Json> body = parse_body(request.body);
  if (!body.ok()) return body.status();
  return note(read_completion(*body, request_));
}

Part& Completion::add_part(const HttpRequest& request) {
  const int first_choice = static_cast<int>(parts_.size()) * request_.call.samples;
  parts_.push_back(std::make_unique<Part>(shared_from_this(), first_choice, request));
  {
    std::lock_guard lock(mutex_);
    ++starting_;
    ++running_;
  }
  parts_.back()->call().enter();
  return *parts_.back();
}

Status Completion::open_parts(const HttpRequest& request) {
  parts_.reserve(request_.prompts.size());
  while (parts_.size() < request_.prompts.size()) {
    if (Status s = add_part(request).call().admit(); !s.ok()) return s;
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (Status s = parts_[i]->prepare(request_.prompts[i], *format_, request_); !s.ok()) return s;
  }
  return {};
}

Status Completion::start_part(size_t index, const std::shared_ptr<const ServedModel>& model,
                              const TextInput& input) {
  CompletionPrompt prompt = std::move(request_.prompts[index]);  // the call counts its values
  GenerateRequest call = request_.call;
  call.begin = std::holds_alternative<std::string>(prompt);
  auto values = values_of(std::move(prompt), input);
  if (!values.ok()) return values.status();
  call.prompt = std::move(*values);
  call.tokenizer = model->tokenizer;
  call.delivery = state_.delivery;
  parts_[index]->call().start(model, std::move(call));
  return {};
}

// --- Completion: parts ---

void Completion::started() {
  std::vector<Part*> holding;
  {
    std::lock_guard lock(mutex_);
    if (--starting_ > 0 || !request_.stream || !fault_.ok()) return;
    begin_events(reply_);
    begun_ = true;
    for (const auto& part : parts_) {
      if (part->holds()) holding.push_back(part.get());
    }
  }
  for (Part* const part : holding) part->send_held();
}

Way Completion::way_of(const std::string& events, std::string& held) {
  std::lock_guard lock(mutex_);
  if (begun_) return Way::kOut;
  if (ended_) return Way::kDropped;
  held = events;
  return Way::kHeld;
}

void Completion::finished(const Status& status) {
  if (!status.ok()) {
    static_cast<void>(note(fault_of(status)));
    end_all({Code::kCancelled, "another prompt of the request could not be answered"});
  }
  end_one();
}

// What note() says, from where on end_all() ends the parts: a failure comes to light here or there.
Status Completion::open(Fault fault) {
  std::lock_guard lock(mutex_);
  open_ = true;
  if (fault_.ok()) fault_ = std::move(fault);
  return fault_.status;
}

// The status that the completion has failed with; OK where neither `fault` nor an earlier one is.
Status Completion::note(Fault fault) {
  std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = std::move(fault);
  return fault_.status;
}

// Ends every part that runs, once; start() does it where parts are still to come.
void Completion::end_all(const Status& status) {
  std::vector<Part*> holding;
  {
    std::lock_guard lock(mutex_);
    if (!open_ || std::exchange(ended_, true)) return;
    for (const auto& part : parts_) {
      if (begun_ || !part->holds()) continue;
      part->drop_held();
      holding.push_back(part.get());
    }
  }
  for (const auto& part : parts_) part->call().refuse(status);
  for (Part* const part : holding) part->go_on_later();
}

void Completion::end_one() {
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

void Completion::answer() {
  std::lock_guard lock(mutex_);
  std::string last;
  if (!fault_.ok() && !begun_) return send_fault(fault_, reply_);
  if (!fault_.ok()) {
    last = event_of(error_json(fault_));
  } else if (request_.stream) {
    last = format_->last_chunk(usage());
  } else {
    std::string choices;
    for (const auto& part : parts_) choices += (choices.empty() ? "" : ",") + part->take_choices();
    last = format_->whole(choices, usage());
  }
  state_.metrics.sent.add(std::ssize(last));
  auto kept = live_answer(state_, shared_from_this());
  if (!request_.stream) {
    return reply_.send({200, "application/json", std::move(last)}, std::move(kept));
  }
  reply_.write(last, [kept = std::move(kept)](bool) {});
  reply_.end();
}

CompletionUsage Completion::usage() const {
  CompletionUsage sum;
  for (const auto& part : parts_) {
    sum.prompt_tokens += part->usage().prompt_tokens;
    sum.completion_tokens += part->usage().completion_tokens;
  }
  return sum;
}

}  // namespace

void start_completion(ServerState& state, const HttpRequest& request, HttpReply reply) {
  std::make_shared<Completion>(state, std::move(reply))->start(request);
}

}  // namespace runnel
