#include "engine/validate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/limits.h"

namespace runnel {
namespace {

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Status between(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for a NaN as well
  return invalid_argument(std::string(field) + " is " + number(value) + "; it must be between " +
                          number(low) + " and " + number(high));
}

Status validate_sampling(const Sampling& sampling, const Spec& spec) {
  // Below a thousandth the tempered logits would leave the range of fp32: greedy is meant.
  if (Status s = between("sampling.temperature", sampling.temperature, 0.001, 100); !s.ok()) {
    return invalid_argument(s.message() + "; for the most likely value set sampling.greedy");
  }
  if (Status s = between("sampling.top_k", sampling.top_k, 0, spec.vocabulary); !s.ok()) return s;
  if (Status s = between("sampling.top_p", sampling.top_p, 0, 1); !s.ok()) return s;
  if (Status s = between("sampling.min_p", sampling.min_p, 0, 1); !s.ok()) return s;
  if (sampling.top_p == 0) {
    return invalid_argument("sampling.top_p is 0; it must be above 0 and at most 1");
  }
  const bool filtered = sampling.top_k != 0 || sampling.top_p != 1 || sampling.min_p != 0;
  if (filtered && spec.head.kind == HeadKind::kMixtureOfLogistics) {
    return invalid_argument(
        "sampling.top_k, top_p and min_p need a categorical head; model '" + spec.name +
        "' has a mixture of logistics: use sampling.temperature or sampling.greedy");
  }
  return {};
}

Status validate_stop_text(const GenerateRequest& request, const Spec& spec) {
  if (!request.stop_text.empty() && request.tokenizer == nullptr) {
    return invalid_argument("stop_text is set, but model '" + spec.name +
                            "' has no tokenizer: use stop, with values");
  }
  const auto count = static_cast<int64_t>(request.stop_text.size());
  if (count > kMaxStopSequences) {
    return invalid_argument("stop_text has " + std::to_string(count) + " texts; at most " +
                            std::to_string(kMaxStopSequences) + " are allowed");
  }
  for (const std::string& text : request.stop_text) {
    const auto bytes = static_cast<int64_t>(text.size());
    if (bytes >= 1 && bytes <= kMaxStopTextBytes) continue;
    return invalid_argument("stop_text has a text of " + std::to_string(bytes) +
                            " bytes; each must have 1 to " + std::to_string(kMaxStopTextBytes));
  }
  return {};
}

Status validate_stop(const GenerateRequest& request, const Spec& spec) {
  const auto count = static_cast<int64_t>(request.stop.size());
  if (count > kMaxStopSequences) {
    return invalid_argument("stop has " + std::to_string(count) + " sequences; at most " +
                            std::to_string(kMaxStopSequences) + " are allowed");
  }
  for (const auto& sequence : request.stop) {
    if (sequence.empty()) {
      return invalid_argument("stop has an empty sequence; each must have 1 to " +
                              std::to_string(kMaxStopLength) + " values");
    }
    if (Status s = validate_values(sequence, "stop", kMaxStopLength, spec); !s.ok()) return s;
  }
  return validate_stop_text(request, spec);
}

Status validate_counts(const GenerateRequest& request, const Spec& spec,
                       const EngineOptions& options) {
  const auto samples = static_cast<double>(request.samples);
  if (Status s = between("samples", samples, 1, static_cast<double>(options.samples)); !s.ok()) {
    return s;
  }
  if (request.max_values) {
    const auto values = static_cast<double>(*request.max_values);
    const auto most = static_cast<double>(options.max_values);
    if (Status s = between("max_values", values, 0, most); !s.ok()) return s;
  } else if (spec.max_length() == 0) {
    return invalid_argument("max_values is not set, and model '" + spec.name +
                            "' has no last position; set it to at most " +
                            std::to_string(options.max_values));
  }
  const int most = std::min(kMaxTopLogProbs, spec.vocabulary);
  if (Status s = between("top_log_probs", request.top_log_probs, 0, most); !s.ok()) return s;
  if (request.keep.value_or(false) && request.samples != 1) {
    return invalid_argument("keep is set with samples = " + std::to_string(request.samples) +
                            "; only one sample can go on as a session");
  }
  if (request.max_time && *request.max_time <= Duration(0)) {
    return invalid_argument("max_time must be above 0");
  }
  return validate_queue_time(request.max_queue_time);
}

Status validate_delivery(const Delivery& delivery) {
  const Limit& values = limits::kDeliveryValues;
  const Limit& delay = limits::kDeliveryDelayMs;
  if (Status s = between("delivery.max_values", delivery.max_values,
                         static_cast<double>(values.min), static_cast<double>(values.max));
      !s.ok()) {
    return s;
  }
  const double ms = std::chrono::duration<double, std::milli>(delivery.max_delay).count();
  if (ms < static_cast<double>(delay.min) || ms > static_cast<double>(delay.max)) {
    return invalid_argument("delivery.max_delay is " + number(ms) + " ms; it must be between " +
                            std::to_string(delay.min) + " and " + std::to_string(delay.max) +
                            " ms");
  }
  return {};
}

}  // namespace

Status validate_queue_time(Duration max_queue_time) {
  constexpr Duration kMost = std::chrono::hours(1);
  if (max_queue_time >= Duration(0) && max_queue_time <= kMost) return {};
  return invalid_argument("max_queue_time must be between 0 s and 3600 s");
}

Status validate_values(const std::vector<int32_t>& values, const char* field, int64_t at_most,
                       const Spec& spec) {
  if (static_cast<int64_t>(values.size()) > at_most) {
    return invalid_argument(std::string(field) + " has " + std::to_string(values.size()) +
                            " values; at most " + std::to_string(at_most) + " are allowed");
  }
  const auto bad = std::find_if(values.begin(), values.end(), [&](int32_t value) {
    return value < 0 || value >= spec.vocabulary;
  });
  if (bad == values.end()) return {};
  return invalid_argument(std::string(field) + "[" + std::to_string(bad - values.begin()) +
                          "] is " + std::to_string(*bad) + "; values of model '" + spec.name +
                          "' are 0 to " + std::to_string(spec.vocabulary - 1));
}

Status validate_length(int64_t position, int64_t values, const Spec& spec) {
  if (spec.max_length() == 0 || position + values <= spec.max_length()) return {};
  return {Code::kOutOfRange, std::to_string(values) + " more values from position " +
                                 std::to_string(position) +
                                 " do not fit: the last position of model '" + spec.name + "' is " +
                                 std::to_string(spec.max_length() - 1)};
}

Status validate_session_id(const std::string& id) {
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
  if (plain && !id.empty() && static_cast<int64_t>(id.size()) <= kMaxNameLength) return {};
  return invalid_argument("a session's id must be 1 to " + std::to_string(kMaxNameLength) +
                          " characters of A-Z a-z 0-9 . _ : -");
}

Status validate(const GenerateRequest& request, const Spec& spec, const EngineOptions& options) {
  if (request.session) {
    if (Status s = validate_session_id(*request.session); !s.ok()) return s;
  } else if (request.prompt.empty() && !request.state && !spec.begin) {
    return invalid_argument("the prompt is empty, and model '" + spec.name +
                            "' has no first value of its own: give at least one value");
  }
  if (static_cast<int64_t>(request.request_id.size()) > kMaxNameLength) {
    return invalid_argument("request_id is longer than " + std::to_string(kMaxNameLength) +
                            " bytes");
  }
  if (Status s = validate_counts(request, spec, options); !s.ok()) return s;
  if (Status s = validate_values(request.prompt, "prompt", options.prompt_values, spec); !s.ok()) {
    return s;
  }
  if (Status s = validate_sampling(request.sampling, spec); !s.ok()) return s;
  if (Status s = validate_stop(request, spec); !s.ok()) return s;
  if (Status s = validate_delivery(request.delivery); !s.ok()) return s;
  if (request.session || request.state) return {};  // its position decides
  return validate_length(0, static_cast<int64_t>(request.prompt.size()), spec);
}

Status validate_rewind(int64_t position, const EngineOptions& options) {
  if (options.rewind_values == 0) {
    return {Code::kFailedPrecondition,
            "this server keeps nothing that a session could go back to: start it with --rewind"};
  }
  if (position >= 0) return {};
  return invalid_argument("position is " + std::to_string(position) + "; it must be at least 0");
}

Status validate_children(const std::vector<std::string>& children, const EngineOptions& options) {
  const auto count = static_cast<int64_t>(children.size());
  if (count < 1 || count > options.samples) {
    return invalid_argument("a fork makes " + std::to_string(count) +
                            " sessions; it must be between 1 and " +
                            std::to_string(options.samples));
  }
  std::set<std::string> ids;
  for (const std::string& id : children) {
    if (id.empty()) continue;
    if (Status s = validate_session_id(id); !s.ok()) return s;
    if (!ids.insert(id).second) {
      return invalid_argument("session '" + id + "' is named twice; each needs a name of its own");
    }
  }
  return {};
}

}  // namespace runnel
