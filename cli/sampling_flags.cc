#include "cli/sampling_flags.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "cli/common_flags.h"

namespace runnel {
namespace {

std::string check_temperature(const std::string& text) {
  char* end = nullptr;
  const double temperature = std::strtod(text.c_str(), &end);  // 0 if it underflows
  const bool is_number = !text.empty() && end == text.c_str() + text.size();
  if (is_number && temperature >= 0 && temperature <= kMostTemperature) return "";
  return "expected a number from 0 (always the most likely value) to " +
         number_text(kMostTemperature) + ", not " + quote(text, 40);
}

std::string check_penalty(const std::string& text) {
  double penalty = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), penalty);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && penalty > 0 && penalty <= kMostRepetitionPenalty) return "";
  return "expected a number above 0 and at most " + number_text(kMostRepetitionPenalty) + ", not " +
         quote(text, 40);
}

// The two sides of "VALUE=BIAS"; none if `text` has another form.
std::optional<std::pair<int32_t, float>> bias_of(const std::string& text) {
  std::pair<int32_t, float> bias;
  const char* const end = text.data() + text.size();
  const auto [sign, no_value] = std::from_chars(text.data(), end, bias.first);
  if (no_value != std::errc() || sign == end || *sign != '=') return std::nullopt;
  const auto [at, no_bias] = std::from_chars(sign + 1, end, bias.second);
  if (no_bias != std::errc() || at != end) return std::nullopt;
  return bias;
}

std::string check_bias(const std::string& text) {
  return bias_of(text) ? "" : "expected VALUE=BIAS, such as 50256=-100, not " + quote(text, 40);
}

}  // namespace

void add_sampling(const Command& command, SamplingFlags& flags) {
  command
      .flag("--seed", flags.seed,
            "Seed; the same seed gives the same values (default: the server chooses a seed and "
            "reports it)")
      .check(check_seed);
  command
      .flag("--temperature", flags.temperature,
            "Above 1: more random; below 1: less random; below 0.001: the same as --greedy")
      .check(check_temperature);
  command.flag("--top-k", flags.top_k, "Sample only from the K most likely values; 0: from all")
      .between(int64_t{0}, kMaxVocabulary);
  command
      .flag("--top-p", flags.top_p,
            "Sample only from the smallest set of values with this total probability")
      .between(0.0, 1.0);
  command
      .flag("--min-p", flags.min_p,
            "Sample only from values with at least this fraction of the highest probability")
      .between(0.0, 1.0);
  command.flag("--greedy", flags.greedy, "Always take the most likely value");
}

void add_penalties(const Command& command, SamplingFlags& flags) {
  command
      .flag("--repetition-penalty", flags.repetition_penalty,
            "Above 1: makes the last values of the sequence less likely to be repeated")
      .check(check_penalty);
  command
      .flag("--presence-penalty", flags.presence_penalty,
            "Subtracted from the logits of values that this call has already sampled")
      .between(-kMostPenalty, kMostPenalty);
  command
      .flag("--frequency-penalty", flags.frequency_penalty,
            "Subtracted from a value's logit once for each time that this call has sampled it")
      .between(-kMostPenalty, kMostPenalty);
  command
      .flag("--logit-bias", flags.logit_bias,
            "VALUE=BIAS, with BIAS from -100 to 100: added to the logit of the value; may be "
            "repeated")
      .one_word_each()
      .check(check_bias);
}

void fill_sampling(const SamplingFlags& flags, v1::Sampling& sampling) {
  if (flags.seed) sampling.set_seed(*flags.seed);
  const bool is_greedy = flags.greedy || flags.temperature.value_or(1) < kLeastTemperature;
  if (flags.temperature && !is_greedy) sampling.set_temperature(*flags.temperature);
  if (flags.top_k) sampling.set_top_k(*flags.top_k);
  if (flags.top_p) sampling.set_top_p(*flags.top_p);
  if (flags.min_p) sampling.set_min_p(*flags.min_p);
  if (flags.repetition_penalty) sampling.set_repetition_penalty(*flags.repetition_penalty);
  if (flags.presence_penalty) sampling.set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) sampling.set_frequency_penalty(*flags.frequency_penalty);
  for (const std::string& text : flags.logit_bias) {
    const auto bias = bias_of(text);  // the parse has checked it
    if (bias) (*sampling.mutable_logit_bias())[bias->first] = bias->second;
  }
  if (is_greedy) sampling.set_greedy(true);
}

}  // namespace runnel
