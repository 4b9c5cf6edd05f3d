#include "server/grpc/convert.h"

#include <algorithm>
#include <numbers>

#include "base/text.h"

namespace runnel {
namespace {

constexpr int64_t kMostSeconds = 9'000'000'000;  // what a Duration can count: 285 years
constexpr int64_t kNanosPerSecond = 1'000'000'000;

void set_duration(Duration duration, google::protobuf::Duration& message) {
  message.set_seconds(duration.count() / kNanosPerSecond);
  message.set_nanos(static_cast<int32_t>(duration.count() % kNanosPerSecond));
}

Result<std::vector<int32_t>> values_of(const std::string& text, const TextInput& input) {
  if (input.tokenizer == nullptr) {
    return invalid_argument("text is set, but model " + quote(input.model) +
                            " has no tokenizer: send values");
  }
  if (std::ssize(text) > input.at_most) {
    return invalid_argument("text has " + std::to_string(text.size()) + " bytes; at most " +
                            std::to_string(input.at_most) + " are allowed");
  }
  auto values = input.tokenizer->encode(text);
  if (!values.ok()) return invalid_argument("text: " + values.status().message());
  return values;
}

Sampling sampling_of(const v1::Sampling& message) {
  Sampling sampling;
  if (message.has_temperature()) sampling.temperature = message.temperature();
  if (message.has_top_k()) sampling.top_k = message.top_k();
  if (message.has_top_p()) sampling.top_p = message.top_p();
  if (message.has_min_p()) sampling.min_p = message.min_p();
  if (message.has_greedy()) sampling.greedy = message.greedy();
  return sampling;
}

std::vector<int32_t> values_of(const v1::ValueList& list) {
  return {list.values().begin(), list.values().end()};
}

v1::Finished::Reason reason_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return v1::Finished::LENGTH;
    case FinishReason::kStop:
      return v1::Finished::STOP;
    case FinishReason::kEnd:
      return v1::Finished::END;
    case FinishReason::kTime:
      return v1::Finished::TIME;
  }
  return v1::Finished::REASON_UNSPECIFIED;
}

v1::Session::State state_of(SessionState state) {
  switch (state) {
    case SessionState::kNew:
      return v1::Session::NEW;
    case SessionState::kPrompting:
      return v1::Session::PROMPTING;
    case SessionState::kGenerating:
      return v1::Session::GENERATING;
    case SessionState::kIdle:
      return v1::Session::IDLE;
    case SessionState::kEnded:
      break;
  }
  return v1::Session::STATE_UNSPECIFIED;
}

void set_started(const Started& started, v1::Started& message) {
  message.set_session(started.session);
  message.set_seed(started.seed);
  message.set_position(started.position);
  message.set_numerics(started.numerics);
}

void set_finished(const Finished& finished, v1::Finished& message) {
  message.set_sample(finished.sample);
  message.set_reason(reason_of(finished.reason));
  v1::Usage& usage = *message.mutable_usage();
  usage.set_prompt_values(finished.prompt_values);
  usage.set_sampled_values(finished.sampled_values);
  usage.set_position(finished.position);
  set_duration(finished.elapsed, *usage.mutable_elapsed());
}

}  // namespace

Result<std::optional<std::string>> session_of(const v1::Origin& origin) {
  if (origin.origin_case() == v1::Origin::kState) {
    return not_found("no stored state " + quote(origin.state()) +
                     ": this server stores none; start from a session, or leave the origin empty");
  }
  if (origin.origin_case() == v1::Origin::kSession) return std::optional(origin.session());
  return std::optional<std::string>();
}

Result<Duration> duration_of(const google::protobuf::Duration& duration, const char* name) {
  const int64_t seconds = duration.seconds();
  const int64_t nanos = duration.nanos();
  const bool one_sign = (seconds <= 0 || nanos >= 0) && (seconds >= 0 || nanos <= 0);
  if (!one_sign || nanos <= -kNanosPerSecond || nanos >= kNanosPerSecond) {
    return invalid_argument(std::string(name) + " has seconds = " + std::to_string(seconds) +
                            " and nanos = " + std::to_string(nanos) +
                            "; expected both of one sign, and nanos between -999999999 and "
                            "999999999");
  }
  const int64_t counted = std::clamp(seconds, -kMostSeconds, kMostSeconds);
  return Duration(counted * kNanosPerSecond + nanos);
}

Result<GenerateRequest> request_of(const v1::GenerateRequest& message, const TextInput& input,
                                   const Delivery& delivery) {
  GenerateRequest request;
  Result<std::optional<std::string>> session = session_of(message.origin());
  if (!session.ok()) return session.status();
  request.session = std::move(*session);
  auto prompt = message.has_text() ? values_of(message.text(), input) : values_of(message.values());
  if (!prompt.ok()) return prompt.status();
  request.prompt = std::move(*prompt);
  if (message.has_samples()) request.samples = message.samples();
  if (message.has_max_values()) request.max_values = message.max_values();
  if (message.has_max_time()) {
    const Result<Duration> max_time = duration_of(message.max_time(), "max_time");
    if (!max_time.ok()) return max_time.status();
    request.max_time = *max_time;
  }
  if (message.sampling().has_seed()) request.seed = message.sampling().seed();
  request.sampling = sampling_of(message.sampling());
  for (const v1::ValueList& sequence : message.stop()) request.stop.push_back(values_of(sequence));
  request.stop_text = {message.stop_text().begin(), message.stop_text().end()};
  request.tokenizer = input.tokenizer;
  if (message.has_top_log_probs()) request.top_log_probs = message.top_log_probs();
  if (message.has_keep()) request.keep = message.keep();
  if (message.has_expected_position()) request.expected_position = message.expected_position();
  request.request_id = message.request_id();
  request.delivery = delivery;
  if (message.delivery().has_max_values()) {
    request.delivery.max_values = message.delivery().max_values();
  }
  if (message.delivery().has_max_delay()) {
    const Result<Duration> delay =
        duration_of(message.delivery().max_delay(), "delivery.max_delay");
    if (!delay.ok()) return delay.status();
    request.delivery.max_delay = *delay;
  }
  return request;
}

Result<std::vector<int32_t>> chunk_of(const v1::ScoreRequest& message, const TextInput& input) {
  if (message.has_text()) return values_of(message.text(), input);
  return values_of(message.values());
}

v1::Session session_message(const SessionInfo& session, const std::string& model,
                            int64_t state_bytes) {
  v1::Session message;
  message.set_id(session.key.id);
  message.set_model(model);
  message.set_position(session.position);
  message.set_state(state_of(session.state));
  message.set_state_bytes(state_bytes);
  set_duration(session.idle, *message.mutable_idle());
  return message;
}

void GroupMessages::start(const StreamGroup& group, bool with_top) {
  group_ = &group;
  with_top_ = with_top;
  started_ = false;
  value_ = 0;
  top_ = 0;
  finished_ = 0;
}

bool GroupMessages::next(v1::GenerateResponse& message) {
  if (group_ == nullptr) return false;
  if (group_->started && !started_) {
    started_ = true;
    message.mutable_started()->Clear();
    set_started(*group_->started, *message.mutable_started());
    return true;
  }
  if (value_ < group_->values.size()) {
    message.mutable_values()->clear_runs();  // their memory is used again
    add_values(*message.mutable_values());
    return true;
  }
  if (finished_ < group_->finished.size()) {
    if (add_rest(group_->finished[finished_], message)) return true;
    message.mutable_finished()->Clear();
    set_finished(group_->finished[finished_++], *message.mutable_finished());
    return true;
  }
  return false;
}

void GroupMessages::add_values(v1::Values& values) {
  constexpr size_t kValueBytes = 48;  // at most: value, log-probability, and a run of its own
  constexpr size_t kTopBytes = 18;
  std::ranges::fill(runs_, -1);
  for (size_t bytes = 0; value_ < group_->values.size() && bytes < kMessageTarget; ++value_) {
    const StreamValue& value = group_->values[value_];
    v1::ValueRun& run = run_of(value, values);
    run.add_values(value.value);
    run.add_log_probs(value.log_prob);
    bytes += kValueBytes + kTopBytes * value.top_count + add_text(value, run);
    if (!with_top_) continue;
    v1::TopLogProbs& top = *run.add_top_log_probs();
    for (int i = 0; i < value.top_count; ++i, ++top_) {
      v1::TopLogProb& entry = *top.add_top();
      entry.set_value(group_->top[top_].value);
      entry.set_log_prob(group_->top[top_].log_prob);
    }
  }
}

// Gives how many bytes of text it has added.
size_t GroupMessages::add_text(const StreamValue& value, v1::ValueRun& run) {
  if (tokenizer_ == nullptr) return 0;
  const auto sample = static_cast<size_t>(value.sample);
  if (sample >= texts_.size()) texts_.resize(sample + 1);
  const size_t before = run.text().size();
  texts_[sample].add(tokenizer_->bytes(value.value), *run.mutable_text());
  return run.text().size() - before;
}

// A sample that ends within a character: false where it does not.
bool GroupMessages::add_rest(const Finished& finished, v1::GenerateResponse& message) {
  const auto sample = static_cast<size_t>(finished.sample);
  if (sample >= texts_.size() || !texts_[sample].is_waiting()) return false;
  message.mutable_values()->clear_runs();
  v1::ValueRun& run = *message.mutable_values()->add_runs();
  run.set_sample(finished.sample);
  run.set_position(finished.position);
  texts_[sample].end(*run.mutable_text());
  return true;
}

// The run that `value` goes on with, or a new one.
v1::ValueRun& GroupMessages::run_of(const StreamValue& value, v1::Values& values) {
  const auto sample = static_cast<size_t>(value.sample);
  if (sample >= runs_.size()) runs_.resize(sample + 1, -1);
  if (runs_[sample] >= 0) {
    v1::ValueRun& run = *values.mutable_runs(runs_[sample]);
    if (run.position() + run.values_size() == value.position) return run;
  }
  runs_[sample] = values.runs_size();
  v1::ValueRun& run = *values.add_runs();
  run.set_sample(value.sample);
  run.set_position(value.position);
  return run;
}

v1::ScoreTotal total_of(int64_t values, double log_prob, const std::string& numerics) {
  v1::ScoreTotal total;
  total.set_values(values);
  total.set_log_prob(log_prob);
  const double bits = -log_prob / std::numbers::ln2;
  total.set_bits_per_dim(values == 0 ? 0.0 : bits / static_cast<double>(values));
  total.set_numerics(numerics);
  return total;
}

}  // namespace runnel
