#include "server/grpc/convert.h"

#include <algorithm>
#include <filesystem>
#include <numbers>

#include "base/fields.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int64_t kMostSeconds = 9'000'000'000;  // the maximum of a Duration: 285 years
constexpr int64_t kNanosPerSecond = 1'000'000'000;

void set_duration(Duration duration, google::protobuf::Duration& message) {
  message.set_seconds(duration.count() / kNanosPerSecond);
  message.set_nanos(static_cast<int32_t>(duration.count() % kNanosPerSecond));
}

Sampling sampling_of(const v1::Sampling& message) {
  Sampling sampling;
  if (message.has_top_k()) sampling.top_k = message.top_k();
  if (message.has_top_p()) sampling.top_p = message.top_p();
  if (message.has_min_p()) sampling.min_p = message.min_p();
  if (message.has_greedy()) sampling.greedy = message.greedy();
  if (message.has_temperature()) set_temperature(message.temperature(), sampling);
  return sampling;
}

// Null if nothing that changes a logit is set.
std::shared_ptr<const Penalties> penalties_of(const v1::Sampling& message) {
  Penalties penalties;
  if (message.has_repetition_penalty()) penalties.repetition = message.repetition_penalty();
  if (message.has_frequency_penalty()) penalties.frequency = message.frequency_penalty();
  if (message.has_presence_penalty()) penalties.presence = message.presence_penalty();
  for (const auto& [value, bias] : message.logit_bias()) {
    penalties.logit_bias.push_back({value, bias});
  }
  std::ranges::sort(penalties.logit_bias, {}, &LogitBias::value);
  return penalties.any() ? std::make_shared<const Penalties>(std::move(penalties)) : nullptr;
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
    case FinishReason::kEos:
      return v1::Finished::EOS;
  }
  return v1::Finished::REASON_UNSPECIFIED;
}

v1::Session::State state_of(SessionPhase state) {
  switch (state) {
    case SessionPhase::kNew:
      return v1::Session::NEW;
    case SessionPhase::kPrompting:
      return v1::Session::PROMPTING;
    case SessionPhase::kGenerating:
      return v1::Session::GENERATING;
    case SessionPhase::kMoving:
      return v1::Session::MOVING;
    case SessionPhase::kIdle:
      return v1::Session::IDLE;
    case SessionPhase::kEnded:
      break;
  }
  return v1::Session::STATE_UNSPECIFIED;
}

// Writes an event to a GenerateResponse.
struct ToResponse {
  v1::GenerateResponse& response;

  void operator()(const Queued& queued) const {
    v1::Queued& message = *response.mutable_queued();
    message.set_place(queued.place);
    if (queued.wait) set_duration(*queued.wait, *message.mutable_expected_wait());
  }

  void operator()(const Started& started) const {
    v1::Started& message = *response.mutable_started();
    message.set_session(started.session);
    message.set_seed(started.seed);
    message.set_position(started.position);
    message.set_numerics(started.numerics);
  }

  void operator()(const SampledValues& values) const {
    v1::Values& message = *response.mutable_values();
    message.clear_runs();
    for (const ValueRun& run : values.runs) set_run(run, *message.add_runs());
  }

  void operator()(const Finished& finished) const {
    v1::Finished& message = *response.mutable_finished();
    message.set_sample(finished.sample);
    message.set_reason(reason_of(finished.reason));
    v1::Usage& usage = *message.mutable_usage();
    usage.set_prompt_values(finished.prompt_values);
    usage.set_cached_values(finished.cached_values);
    usage.set_sampled_values(finished.sampled_values);
    usage.set_position(finished.position);
    set_duration(finished.elapsed, *usage.mutable_elapsed());
    if (finished.first_value) set_duration(*finished.first_value, *usage.mutable_first_value());
  }

 private:
  static void set_run(const ValueRun& run, v1::ValueRun& message) {
    message.set_sample(run.sample);
    message.set_position(run.position);
    message.mutable_values()->Add(run.values.begin(), run.values.end());
    message.mutable_log_probs()->Add(run.log_probs.begin(), run.log_probs.end());
    message.set_text(run.text);
    auto top = run.top.begin();
    for (const int32_t count : run.top_counts) {
      v1::TopLogProbs& all = *message.add_top_log_probs();
      for (int32_t i = 0; i < count; ++i, ++top) {
        v1::TopLogProb& entry = *all.add_top();
        entry.set_value(top->value);
        entry.set_log_prob(top->log_prob);
      }
    }
  }
};

// Writes an event to a ScoreResponse.
struct ToScoreResponse {
  v1::ScoreResponse& response;

  void operator()(const ScoredValues& scored) const {
    v1::ScoreChunk& message = *response.mutable_chunk();
    message.set_position(scored.position);
    message.clear_log_probs();
    message.mutable_log_probs()->Add(scored.log_probs.begin(), scored.log_probs.end());
  }

  void operator()(const ScoreTotal& total) const {
    v1::ScoreTotal& message = *response.mutable_total();
    message.set_values(total.values);
    message.set_log_prob(total.log_prob);
    const double bits = -total.log_prob / std::numbers::ln2;
    message.set_bits_per_dim(total.values == 0 ? 0.0 : bits / static_cast<double>(total.values));
    message.set_numerics(total.numerics);
  }
};

}  // namespace

Origin start_of(const v1::Origin& origin) {
  Origin start;
  if (origin.has_session()) start.session = origin.session();
  if (origin.has_state()) start.state = origin.state();
  return start;
}

Result<Duration> duration_of(const google::protobuf::Duration& duration, std::string_view field) {
  const int64_t seconds = duration.seconds();
  const int64_t nanos = duration.nanos();
  const bool one_sign = (seconds <= 0 || nanos >= 0) && (seconds >= 0 || nanos <= 0);
  if (!one_sign || nanos <= -kNanosPerSecond || nanos >= kNanosPerSecond) {
    return invalid_argument(place_of(field) + " has seconds = " + std::to_string(seconds) +
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
  request.model = message.model();
  Origin origin = start_of(message.origin());
  request.session = std::move(origin.session);
  request.state = std::move(origin.state);
  auto prompt =
      message.has_text() ? values_of_text(message.text(), input) : values_of(message.values());
  if (!prompt.ok()) return prompt.status();
  request.prompt = std::move(*prompt);
  request.begin = message.has_begin() ? message.begin() : message.has_text();
  if (message.has_samples()) request.samples = message.samples();
  if (message.has_max_values()) request.max_values = message.max_values();
  if (message.has_max_time()) {
    const Result<Duration> max_time = duration_of(message.max_time(), fields::kMaxTime);
    if (!max_time.ok()) return max_time.status();
    request.max_time = *max_time;
  }
  const Result<Duration> queue_time = duration_of(message.max_queue_time(), fields::kMaxQueueTime);
  if (!queue_time.ok()) return queue_time.status();
  request.max_queue_time = *queue_time;
  if (message.sampling().has_seed()) request.seed = message.sampling().seed();
  request.sampling = sampling_of(message.sampling());
  request.penalties = penalties_of(message.sampling());
  for (const v1::ValueList& sequence : message.stop()) request.stop.push_back(values_of(sequence));
  request.stop_text = {message.stop_text().begin(), message.stop_text().end()};
  request.ignore_eos = message.ignore_eos();
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
        duration_of(message.delivery().max_delay(), fields::kDeliveryMaxDelay);
    if (!delay.ok()) return delay.status();
    request.delivery.max_delay = *delay;
  }
  return request;
}

Result<std::vector<int32_t>> chunk_of(const v1::ScoreRequest& message, const TextInput& input) {
  if (message.has_text()) return values_of_text(message.text(), input);
  return values_of(message.values());
}

v1::Session session_message(const SessionInfo& session, const ServedModel& model) {
  v1::Session message;
  message.set_id(session.key.id);
  message.set_model(model.name);
  message.set_position(session.position);
  message.set_state(state_of(session.state));
  message.set_state_bytes(model.engine->state_bytes());
  set_duration(session.idle, *message.mutable_idle());
  return message;
}

v1::ModelInfo model_message(const ServedModel& model, const std::vector<std::string>& aliases) {
  const Engine& engine = *model.engine;
  const Spec& spec = engine.spec();
  const EngineStats stats = engine.stats();
  v1::ModelInfo info;
  info.set_name(model.name);
  info.set_spec_json(model.spec_json);
  info.set_parameters(spec.parameters());
  info.set_state_bytes(engine.state_bytes());
  info.set_position_bytes(engine.position_bytes());
  info.set_sessions(stats.sessions);
  info.set_sessions_free(stats.sessions_free);
  info.set_numerics(engine.numerics());
  info.set_backend(device_name(engine.device()));
  info.set_weight_digest(model.weight_digest);
  info.set_vocabulary(spec.vocabulary);
  info.set_max_length(spec.max_length());
  if (spec.image) {
    info.mutable_image()->set_height(spec.image->height);
    info.mutable_image()->set_width(spec.image->width);
    info.mutable_image()->set_channels(spec.image->channels);
  }
  for (const std::string& symbol : spec.symbols) info.add_symbols(symbol);
  info.set_has_begin(spec.begin.has_value());
  info.set_head(head_kind_name(spec.head.kind));
  info.set_has_text(model.tokenizer != nullptr);
  info.set_instructions(model.instructions);
  if (model.chat != nullptr) {
    v1::ChatInfo& chat = *info.mutable_chat();
    // Callers must not see the server's folders.
    chat.set_template_name(std::filesystem::path(model.chat->name()).filename());
    chat.set_stop_text(model.chat->stop_text());
    chat.set_begins_thinking(model.chat->traits().thinking_open);
  } else {
    info.mutable_chat()->set_missing(model.no_chat);
  }
  info.mutable_aliases()->Add(aliases.begin(), aliases.end());
  return info;
}

void encode(const GenerateEvent& event, v1::GenerateResponse& message) {
  std::visit(ToResponse{message}, event);
}

void encode(const ScoreEvent& event, v1::ScoreResponse& message) {
  std::visit(ToScoreResponse{message}, event);
}

}  // namespace runnel
