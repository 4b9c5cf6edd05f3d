#include "engine/validate.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "base/fields.h"
#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

Status outside(std::string_view field, const std::string& value, const std::string& low,
               const std::string& high) {
  return invalid_argument(place_of(field) + " is " + value + "; it must be between " + low +
                          " and " + high);
}

Status between(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // NaN fails this, too
  return outside(field, number_text(value), number_text(low), number_text(high));
}

Status between(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return outside(field, std::to_string(value), std::to_string(low), std::to_string(high));
}

Status above_zero(std::string_view field, float value, float most) {
  if (value > 0 && value <= most) return {};
  return invalid_argument(place_of(field) + " is " + number_text(value) +
                          "; it must be above 0 and at most " + number_text(most));
}

Status validate_ranges(const Sampling& sampling, const Spec& spec) {
  // The message says 0, because set_temperature() also accepts temperatures below
  // kLeastTemperature, and makes sampling greedy.
  const float temperature = sampling.temperature;
  if (!(temperature >= kLeastTemperature && temperature <= kMostTemperature)) {
    return outside(fields::kTemperature, number_text(temperature), "0",
                   number_text(kMostTemperature));
  }
  if (Status s = between(fields::kTopK, int64_t{sampling.top_k}, 0, spec.vocabulary); !s.ok()) {
    return s;
  }
  // The most likely value is always kept, so a greedy choice also allows 0.
  const bool is_free = sampling.greedy && sampling.top_p == 0;
  if (Status s = above_zero(fields::kTopP, sampling.top_p, 1); !s.ok() && !is_free) return s;
  return between(fields::kMinP, sampling.min_p, 0.0F, 1.0F);
}

Status validate_sampling(const Sampling& sampling, const NamedModel& model) {
  if (Status s = validate_ranges(sampling, model.spec); !s.ok() || sampling.greedy) return s;
  const bool filtered = sampling.top_k != 0 || sampling.top_p != 1 || sampling.min_p != 0;
  if (filtered && model.spec.head.kind == HeadKind::kMixtureOfLogistics) {
    return invalid_argument(place_of(fields::kTopK) + ", " + place_of(fields::kTopP) + " and " +
                            place_of(fields::kMinP) + " need a categorical head; model " +
                            model.quoted() + " has a mixture of logistics: use " +
                            place_of(fields::kTemperature));
  }
  return {};
}

Status validate_stop_text(const GenerateRequest& request, const NamedModel& model) {
  if (!request.stop_text.empty() && request.tokenizer == nullptr) {
    return invalid_argument(place_of(fields::kStopText) + " is set, but model " + model.quoted() +
                            " has no tokenizer" +
                            hint(": use " + place_of(fields::kStop) + ", with values"));
  }
  const auto count = static_cast<int64_t>(request.stop_text.size());
  if (count > kMaxStopSequences) {
    return invalid_argument(place_of(fields::kStopText) + " has " + std::to_string(count) +
                            " texts; at most " + std::to_string(kMaxStopSequences) +
                            " are allowed");
  }
  for (const std::string& text : request.stop_text) {
    const auto bytes = static_cast<int64_t>(text.size());
    if (bytes >= 1 && bytes <= kMaxStopTextBytes) continue;
    return invalid_argument(place_of(fields::kStopText) + " has a text of " +
                            std::to_string(bytes) + " bytes; each must have 1 to " +
                            std::to_string(kMaxStopTextBytes));
  }
  return {};
}

Status validate_stop(const GenerateRequest& request, const NamedModel& model) {
  const auto count = static_cast<int64_t>(request.stop.size());
  if (count > kMaxStopSequences) {
    return invalid_argument(place_of(fields::kStop) + " has " + std::to_string(count) +
                            " sequences; at most " + std::to_string(kMaxStopSequences) +
                            " are allowed");
  }
  for (const auto& sequence : request.stop) {
    if (sequence.empty()) {
      return invalid_argument(place_of(fields::kStop) +
                              " has an empty sequence; each must have 1 to " +
                              std::to_string(kMaxStopLength) + " values");
    }
    if (Status s = validate_values(sequence, fields::kStop, kMaxStopLength, model); !s.ok())
      return s;
  }
  return validate_stop_text(request, model);
}

Status validate_counts(const GenerateRequest& request, const NamedModel& model,
                       const EngineOptions& options) {
  if (Status s = between(fields::kSamples, int64_t{request.samples}, 1, options.samples); !s.ok()) {
    return s;
  }
  if (request.max_values) {
    Status s = between(fields::kMaxValues, *request.max_values, 0, options.max_values);
    if (!s.ok()) return s;
  } else if (model.spec.max_length() == 0) {
    return invalid_argument(place_of(fields::kMaxValues) + " is not set, and model " +
                            model.quoted() + " has no last position; set it to at most " +
                            std::to_string(options.max_values));
  }
  if (Status s = validate_top_log_probs(request.top_log_probs, model.spec); !s.ok()) return s;
  if (request.keep.value_or(false) && request.samples != 1) {
    return invalid_argument(place_of(fields::kKeep) + " is set with " + place_of(fields::kSamples) +
                            " = " + std::to_string(request.samples) +
                            "; only one sample can go on as a session");
  }
  if (request.max_time && *request.max_time <= Duration(0)) {
    return invalid_argument(place_of(fields::kMaxTime) + " must be above 0");
  }
  return validate_queue_time(request.max_queue_time);
}

Status validate_turn(const GenerateRequest& request, const NamedModel& model,
                     const EngineOptions& options) {
  if (!request.turn) return {};
  for (const auto* const values : {&request.turn->values, &request.turn->after_stop}) {
    Status s = validate_values(*values, fields::kPrompt, options.prompt_values, model);
    if (!s.ok()) return s;
  }
  return {};
}

Status validate_delivery(const Delivery& delivery) {
  const Limit& values = limits::kDeliveryValues;
  const Limit& delay = limits::kDeliveryDelayMs;
  if (Status s =
          between(fields::kDeliveryMaxValues, int64_t{delivery.max_values}, values.min, values.max);
      !s.ok()) {
    return s;
  }
  const double ms = std::chrono::duration<double, std::milli>(delivery.max_delay).count();
  if (ms < static_cast<double>(delay.min) || ms > static_cast<double>(delay.max)) {
    return invalid_argument(place_of(fields::kDeliveryMaxDelay) + " is " +
                            number_text(static_cast<float>(ms)) + " ms; it must be between " +
                            std::to_string(delay.min) + " and " + std::to_string(delay.max) +
                            " ms");
  }
  return {};
}

// The first penalty that is set.
std::string_view penalty_field(const Penalties& penalties) {
  if (penalties.repetition != 1.0F) return fields::kRepetitionPenalty;
  if (penalties.presence != 0.0F) return fields::kPresencePenalty;
  return penalties.frequency != 0.0F ? fields::kFrequencyPenalty : fields::kLogitBias;
}

Status validate_logit_bias(const std::vector<LogitBias>& terms, const NamedModel& model) {
  const auto count = std::ssize(terms);
  if (count > kMaxLogitBiases) {
    return invalid_argument(place_of(fields::kLogitBias) + " has " + std::to_string(count) +
                            " values; at most " + std::to_string(kMaxLogitBiases) + " are allowed");
  }
  for (const LogitBias& term : terms) {
    const std::string place = place_of(fields::kLogitBias) + "[" + std::to_string(term.value) + "]";
    if (term.value < 0 || term.value >= model.spec.vocabulary) {
      return invalid_argument(place + " is for no value of model " + model.quoted() +
                              "; those are 0 to " + std::to_string(model.spec.vocabulary - 1));
    }
    if (term.bias >= -kMostLogitBias && term.bias <= kMostLogitBias) continue;
    const std::string most = number_text(kMostLogitBias);
    return invalid_argument(place + " is " + number_text(term.bias) + "; it must be between -" +
                            most + " and " + most);
  }
  const bool ascends = std::ranges::is_sorted(terms, std::ranges::less_equal(), &LogitBias::value);
  if (ascends || count < 2) return {};
  return invalid_argument(place_of(fields::kLogitBias) + " names a value twice");
}

}  // namespace

Status validate_penalties(const Penalties& penalties, const NamedModel& model, int recent) {
  if (Status s =
          above_zero(fields::kRepetitionPenalty, penalties.repetition, kMostRepetitionPenalty);
      !s.ok()) {
    return s;
  }
  for (const auto& [field, penalty] : {std::pair(fields::kPresencePenalty, penalties.presence),
                                       std::pair(fields::kFrequencyPenalty, penalties.frequency)}) {
    if (Status s = between(field, penalty, -kMostPenalty, kMostPenalty); !s.ok()) return s;
  }
  if (Status s = validate_logit_bias(penalties.logit_bias, model); !s.ok()) return s;
  const std::string place = place_of(penalty_field(penalties));
  if (model.spec.head.kind == HeadKind::kMixtureOfLogistics) {
    return invalid_argument(place + " needs a categorical head; model " + model.quoted() +
                            " has a mixture of logistics: leave it out");
  }
  if (recent == 0 && penalties.looks_back()) {
    return {Code::kFailedPrecondition,
            place +
                " needs a sequence's last values, and this server keeps none: leave it out, or "
                "start the server with --recent-values above 0"};
  }
  return {};
}

Status validate_top_log_probs(int top_log_probs, const Spec& spec) {
  return between(fields::kTopLogProbs, int64_t{top_log_probs}, 0,
                 std::min(kMaxTopLogProbs, spec.vocabulary));
}

Status validate_queue_time(Duration max_queue_time) {
  constexpr Duration kMost = std::chrono::hours(1);
  if (max_queue_time >= Duration(0) && max_queue_time <= kMost) return {};
  return invalid_argument(place_of(fields::kMaxQueueTime) + " must be between 0 s and 3600 s");
}

Status validate_values(const std::vector<int32_t>& values, std::string_view field, int64_t at_most,
                       const NamedModel& model) {
  if (static_cast<int64_t>(values.size()) > at_most) {
    return invalid_argument(place_of(field) + " has " + std::to_string(values.size()) +
                            " values; at most " + std::to_string(at_most) + " are allowed");
  }
  const auto bad = std::find_if(values.begin(), values.end(), [&](int32_t value) {
    return value < 0 || value >= model.spec.vocabulary;
  });
  if (bad == values.end()) return {};
  return invalid_argument(place_of(field) + "[" + std::to_string(bad - values.begin()) + "] is " +
                          std::to_string(*bad) + "; values of model " + model.quoted() +
                          " are 0 to " + std::to_string(model.spec.vocabulary - 1));
}

Status validate_length(int64_t position, int64_t values, std::string_view field,
                       const NamedModel& model) {
  if (model.spec.max_length() == 0 || position + values <= model.spec.max_length()) return {};
  const char* const remedy = model.spec.most_positions > model.spec.positions
                                 ? "; start the server with a larger --context, or begin a "
                                   "new session with less"
                             : model.spec.most_positions > 0 ? "; begin a new session with less"
                                                             : "";
  Status status(Code::kOutOfRange,
                std::to_string(values) + " more values from position " + std::to_string(position) +
                    " do not fit: a sequence of model " + model.quoted() + " holds at most " +
                    std::to_string(model.spec.max_length()) + " values" + remedy);
  return status.at_field(field);
}

Status validate_session_id(const std::string& id, std::string_view field) {
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
  if (plain && !id.empty() && static_cast<int64_t>(id.size()) <= kMaxNameLength) return {};
  Status status = invalid_argument("a session's id must be 1 to " + std::to_string(kMaxNameLength) +
                                   " characters of A-Z a-z 0-9 . _ : -");
  return status.at_field(field);
}

Status validate_origin(const std::optional<std::string>& session,
                       const std::optional<std::string>& state) {
  if (session && state) {
    return invalid_argument(place_of(fields::kState) + " cannot be combined with " +
                            place_of(fields::kSession) + "; leave one of them out");
  }
  return session ? validate_session_id(*session, fields::kSession) : Status();
}

Status validate(const GenerateRequest& request, const Spec& spec, const EngineOptions& options) {
  const NamedModel model(spec, request.model);
  if (Status s = validate_origin(request.session, request.state); !s.ok()) return s;
  if (request.prompt.empty() && !request.session && !request.state && !spec.begin) {
    Status status = invalid_argument("the prompt is empty, and model " + model.quoted() +
                                     " has no first value of its own: give at least one value");
    return status.at_field(fields::kPrompt);
  }
  if (static_cast<int64_t>(request.request_id.size()) > kMaxNameLength) {
    return invalid_argument(place_of(fields::kRequestId) + " is longer than " +
                            std::to_string(kMaxNameLength) + " bytes");
  }
  if (Status s = validate_counts(request, model, options); !s.ok()) return s;
  if (Status s = validate_values(request.prompt, fields::kPrompt, options.prompt_values, model);
      !s.ok()) {
    return s;
  }
  if (Status s = validate_turn(request, model, options); !s.ok()) return s;
  if (Status s = validate_sampling(request.sampling, model); !s.ok()) return s;
  if (Status s = validate_stop(request, model); !s.ok()) return s;
  if (Status s = validate_delivery(request.delivery); !s.ok()) return s;
  if (request.session || request.state) return {};  // the length depends on its position
  return validate_length(0, std::ssize(request.prompt), fields::kPrompt, model);
}

Status validate_rewind(int64_t position, const EngineOptions& options) {
  if (options.rewind_values == 0) {
    return {Code::kFailedPrecondition,
            "this server keeps nothing that a session could go back to: start it with --rewind"};
  }
  if (position >= 0) return {};
  return invalid_argument(place_of(fields::kPosition) + " is " + std::to_string(position) +
                          "; it must be at least 0");
}

std::string_view fork_field(const std::vector<std::string>& children) {
  const bool is_named =
      std::ranges::any_of(children, [](const std::string& id) { return !id.empty(); });
  return is_named ? fields::kChildren : fields::kCount;
}

Status validate_children(const std::vector<std::string>& children, const EngineOptions& options) {
  const auto count = static_cast<int64_t>(children.size());
  if (count < 1 || count > options.samples) {
    Status status =
        invalid_argument("a fork makes " + std::to_string(count) +
                         " sessions; it must be between 1 and " + std::to_string(options.samples));
    return status.at_field(fork_field(children));
  }
  std::set<std::string> ids;
  for (const std::string& id : children) {
    if (id.empty()) continue;
    if (Status s = validate_session_id(id, fields::kChildren); !s.ok()) return s;
    if (!ids.insert(id).second) {
      Status status =
          invalid_argument("session '" + id + "' is named twice; each needs a name of its own");
      return status.at_field(fields::kChildren);
    }
  }
  return {};
}

}  // namespace runnel
