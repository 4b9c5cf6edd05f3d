#include "cli/field_flags.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/fields.h"

namespace runnel {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kFlags = {{
    {fields::kModel, "--model"},
    {fields::kSession, "--session"},
    {fields::kState, "--from"},
    {fields::kPrompt, "--values"},
    {fields::kText, "--prompt"},
    {fields::kValues, "--values"},
    {fields::kSamples, "--count"},
    {fields::kMaxValues, "--max-values"},
    {fields::kMaxQueueTime, "--max-queue-time"},
    {fields::kTemperature, "--temperature"},
    {fields::kTopK, "--top-k"},
    {fields::kTopP, "--top-p"},
    {fields::kMinP, "--min-p"},
    {fields::kGreedy, "--greedy"},
    {fields::kRepetitionPenalty, "--repetition-penalty"},
    {fields::kFrequencyPenalty, "--frequency-penalty"},
    {fields::kPresencePenalty, "--presence-penalty"},
    {fields::kLogitBias, "--logit-bias"},
    {fields::kStopText, "--stop"},
    {fields::kTopLogProbs, "--top-log-probs"},
    {fields::kKeep, "--keep"},
}};

}  // namespace

std::string_view flag_of(std::string_view field) {
  const auto known = std::ranges::find(kFlags, field, &decltype(kFlags)::value_type::first);
  return known == kFlags.end() ? std::string_view() : known->second;
}

Status in_flags(const Status& status) {
  return status.ok() ? status : Status(status.code(), status.message(flag_of));
}

}  // namespace runnel
