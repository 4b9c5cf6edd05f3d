#include "server/openai/words.h"

#include <span>

#include "base/field.h"
#include "base/fields.h"

namespace runnel {
namespace {

constexpr NamedField kShared[] = {
    {fields::kModel, "model"},
    {fields::kMaxQueueTime, "max_queue_time"},
    {fields::kTemperature, "temperature"},
    {fields::kTopK, "top_k"},
    {fields::kTopP, "top_p"},
    {fields::kMinP, "min_p"},
    {fields::kRepetitionPenalty, "repetition_penalty"},
    {fields::kFrequencyPenalty, "frequency_penalty"},
    {fields::kPresencePenalty, "presence_penalty"},
    {fields::kLogitBias, "logit_bias"},
};

constexpr NamedField kCompletion[] = {
    {fields::kSession, "session"},
    {fields::kState, "state"},
    {fields::kToken, "state_token"},
    {fields::kPrompt, "prompt"},
    {fields::kText, "prompt"},
    {fields::kValues, "prompt"},
    {fields::kSamples, "n"},
    {fields::kMaxValues, "max_tokens"},
    {fields::kStopText, "stop"},
    {fields::kTopLogProbs, "logprobs"},
    {fields::kKeep, "keep"},
    {fields::kIncludeState, "include_state"},
    {fields::kExpectedPosition, "position"},
};

constexpr NamedField kChat[] = {
    {fields::kSession, "session"},
    {fields::kState, "state"},
    {fields::kToken, "state_token"},
    {fields::kMessages, "messages"},
    {fields::kTools, "tools"},
    {fields::kVariables, "chat_template_kwargs"},
    {fields::kContinues, "continue_final_message"},
    {fields::kPrompt, "messages"},
    {fields::kText, "messages"},
    {fields::kValues, "messages"},
    {fields::kSamples, "n"},
    {fields::kMaxValues, "max_completion_tokens"},
    {fields::kStopText, "stop"},
    {fields::kTopLogProbs, "top_logprobs"},
    {fields::kKeep, "keep"},
    {fields::kIncludeState, "include_state"},
    {fields::kExpectedPosition, "position"},
};

constexpr NamedField kResponse[] = {
    {fields::kState, "state"},
    {fields::kToken, "state_token"},
    {fields::kIncludeState, "include_state"},
    {fields::kMessages, "input"},
    {fields::kTools, "tools"},
    {fields::kPrompt, "input"},
    {fields::kText, "input"},
    {fields::kValues, "input"},
    {fields::kMaxValues, "max_output_tokens"},
    {fields::kTopLogProbs, "top_logprobs"},
};

constexpr NamedField kImage[] = {
    {fields::kPrompt, "prompt"}, {fields::kText, "prompt"},    {fields::kValues, "prompt"},
    {fields::kSamples, "n"},     {fields::kMaxValues, "size"},
};

std::string_view word_of(std::span<const NamedField> own, std::string_view field) {
  const std::string_view word = word_in(own, field);
  return word.empty() ? word_in(kShared, field) : word;
}

}  // namespace

std::string_view completion_word(std::string_view field) { return word_of(kCompletion, field); }
std::string_view chat_word(std::string_view field) { return word_of(kChat, field); }
std::string_view response_word(std::string_view field) { return word_of(kResponse, field); }
std::string_view image_word(std::string_view field) { return word_of(kImage, field); }

}  // namespace runnel
