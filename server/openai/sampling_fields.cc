#include "server/openai/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace runnel {
namespace {

// Returns none if the text is not a token.
std::optional<int32_t> token_of(const std::string& text) {
  int32_t token = -1;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, token);
  if (error != std::errc() || at != end || token < 0) return std::nullopt;
  return token;
}

void read_logit_bias(RequestFields& fields, std::vector<LogitBias>& terms) {
  const Json* const given = fields.find("logit_bias");
  if (given == nullptr) return;
  const auto refuse = [&] {
    fields.refuse("logit_bias", "must be an object of numbers by token: {\"50256\": -100}");
  };
  if (!given->is_object()) return refuse();
  for (const auto& [key, bias] : given->items()) {
    const std::optional<int32_t> token = token_of(key);
    if (!token || !bias.is_number()) return refuse();
    const std::optional<float> number = float_number(bias);
    if (!number) {
      return fields.refuse("logit_bias", "has " + describe(bias) + " for token " + key +
                                             ", which is too large; send a smaller one");
    }
    terms.push_back({*token, *number});
  }
  std::ranges::sort(terms, {}, &LogitBias::value);
}

}  // namespace

void read_samples(RequestFields& fields, GenerateRequest& call) {
  call.samples = static_cast<int>(fields.integer("n", 1, limits::kSamples.max).value_or(1));
}

void read_penalties(RequestFields& fields, GenerateRequest& call) {
  Penalties penalties;
  penalties.repetition = fields.number("repetition_penalty").value_or(penalties.repetition);
  penalties.frequency = fields.number("frequency_penalty").value_or(penalties.frequency);
  penalties.presence = fields.number("presence_penalty").value_or(penalties.presence);
  read_logit_bias(fields, penalties.logit_bias);
  if (penalties.any()) call.penalties = std::make_shared<const Penalties>(std::move(penalties));
}

void read_sampling(RequestFields& fields, GenerateRequest& call) {
  Sampling& sampling = call.sampling;
  if (const auto temperature = fields.number("temperature")) {
    set_temperature(*temperature, sampling);
  }
  if (const auto top_p = fields.number("top_p")) sampling.top_p = *top_p;
  if (const auto min_p = fields.number("min_p")) sampling.min_p = *min_p;
  if (const auto top_k = fields.integer("top_k", -1, INT32_MAX)) {
    sampling.top_k = std::max(static_cast<int32_t>(*top_k), 0);  // -1: all, as vLLM has it
  }
  using Seed = std::numeric_limits<int64_t>;
  if (const auto seed = fields.integer("seed", Seed::min(), Seed::max())) {
    call.seed = static_cast<uint64_t>(*seed);
  }
}

void fit_top_k(const Spec& spec, Sampling& sampling) {
  sampling.top_k = std::min(sampling.top_k, spec.vocabulary);
}

}  // namespace runnel
