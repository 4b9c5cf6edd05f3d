#include "cli/field_flags.h"

#include "base/fields.h"

namespace runnel {
namespace {

constexpr NamedField kSampling[] = {
    {fields::kModel, "--model"},
    {fields::kTemperature, "--temperature"},
    {fields::kTopK, "--top-k"},
    {fields::kTopP, "--top-p"},
    {fields::kMinP, "--min-p"},
    {fields::kRepetitionPenalty, "--repetition-penalty"},
    {fields::kFrequencyPenalty, "--frequency-penalty"},
    {fields::kPresencePenalty, "--presence-penalty"},
    {fields::kLogitBias, "--logit-bias"},
};

// The session that --keep creates has the name of --session.
constexpr NamedField kGenerate[] = {
    {fields::kSession, "--session"},
    {fields::kId, "--session"},
    {fields::kState, "--from"},
    {fields::kPrompt, "--values"},
    {fields::kText, "--prompt"},
    {fields::kValues, "--values"},
    {fields::kSamples, "--count"},
    {fields::kMaxValues, "--max-values"},
    {fields::kMaxQueueTime, "--max-queue-time"},
    {fields::kStopText, "--stop"},
    {fields::kTopLogProbs, "--top-log-probs"},
    {fields::kKeep, "--keep"},
};

constexpr NamedField kDraw[] = {
    {fields::kPrompt, "--prompt-image"},
    {fields::kValues, "--prompt-image"},
};

constexpr NamedField kScore[] = {
    {fields::kModel, "--model"},
    {fields::kText, "--text"},
};

constexpr NamedField kChat[] = {
    {fields::kSession, "the session"}, {fields::kId, "--session"},
    {fields::kMessages, "messages"},   {fields::kMaxValues, "--max-values"},
    {fields::kChildren, "/fork"},
};

constexpr NamedField kSession[] = {
    {fields::kModel, "--model"},          {fields::kId, "id"},
    {fields::kPosition, "position"},      {fields::kChildren, "children"},
    {fields::kCount, "--count"},          {fields::kAnyOwner, "--any-owner"},
    {fields::kExpiresIn, "--expires-in"},
};

constexpr NamedField kSessionLoad[] = {
    {fields::kModel, "--model"},
    {fields::kId, "--id"},
    {fields::kAllowInexact, "--allow-inexact"},
    {fields::kAnyOwner, "--any-owner"},  // a flag of `session save`
};

// The flag for a field of a command that samples.
std::string_view sampling_word(std::span<const NamedField> own, std::string_view field) {
  const std::string_view word = word_in(own, field);
  return word.empty() ? word_in(kSampling, field) : word;
}

}  // namespace

std::string_view generate_flag(std::string_view field) { return sampling_word(kGenerate, field); }
std::string_view draw_flag(std::string_view field) { return sampling_word(kDraw, field); }
std::string_view score_flag(std::string_view field) { return word_in(kScore, field); }
std::string_view chat_flag(std::string_view field) { return sampling_word(kChat, field); }
std::string_view session_flag(std::string_view field) { return word_in(kSession, field); }
std::string_view session_load_flag(std::string_view field) { return word_in(kSessionLoad, field); }

Status in_flags(const Status& status, const FieldWord& flag_of) {
  return status.ok() ? status : Status(status.code(), status.message(flag_of));
}

}  // namespace runnel
