// The canonical names of request fields, as the wire contract has them (proto/runnel/v1). Errors
// name fields by them. Each door has its own words for them (base/field.h).
#pragma once

#include <array>
#include <string_view>

namespace runnel::fields {

inline constexpr std::string_view kModel = "model";
inline constexpr std::string_view kSession = "origin.session";
inline constexpr std::string_view kState = "origin.state";
inline constexpr std::string_view kToken = "origin.token";
inline constexpr std::string_view kPrompt = "prompt";
inline constexpr std::string_view kMessages = "conversation.messages";
inline constexpr std::string_view kTools = "conversation.tools";
inline constexpr std::string_view kVariables = "conversation.variables";
inline constexpr std::string_view kContinues = "conversation.continues";
inline constexpr std::string_view kText = "text";
inline constexpr std::string_view kValues = "values";
inline constexpr std::string_view kSamples = "samples";
inline constexpr std::string_view kMaxValues = "max_values";
inline constexpr std::string_view kMaxTime = "max_time";
inline constexpr std::string_view kMaxQueueTime = "max_queue_time";
inline constexpr std::string_view kTemperature = "sampling.temperature";
inline constexpr std::string_view kTopK = "sampling.top_k";
inline constexpr std::string_view kTopP = "sampling.top_p";
inline constexpr std::string_view kMinP = "sampling.min_p";
inline constexpr std::string_view kRepetitionPenalty = "sampling.repetition_penalty";
inline constexpr std::string_view kFrequencyPenalty = "sampling.frequency_penalty";
inline constexpr std::string_view kPresencePenalty = "sampling.presence_penalty";
inline constexpr std::string_view kLogitBias = "sampling.logit_bias";
inline constexpr std::string_view kStop = "stop";
inline constexpr std::string_view kStopText = "stop_text";
inline constexpr std::string_view kTopLogProbs = "top_log_probs";
inline constexpr std::string_view kKeep = "keep";
inline constexpr std::string_view kIncludeState = "include_state";
inline constexpr std::string_view kExpectedPosition = "expected_position";
inline constexpr std::string_view kRequestId = "request_id";
inline constexpr std::string_view kDeliveryMaxValues = "delivery.max_values";
inline constexpr std::string_view kDeliveryMaxDelay = "delivery.max_delay";
inline constexpr std::string_view kId = "id";
inline constexpr std::string_view kPosition = "position";
inline constexpr std::string_view kChildren = "children";
inline constexpr std::string_view kCount = "count";
inline constexpr std::string_view kPageSize = "page_size";
inline constexpr std::string_view kPageToken = "page_token";
inline constexpr std::string_view kAllowInexact = "allow_inexact";
inline constexpr std::string_view kAnyOwner = "any_owner";
inline constexpr std::string_view kExpiresIn = "expires_in";

// All of these names.
inline constexpr std::array kAll = {kModel,
                                    kSession,
                                    kState,
                                    kToken,
                                    kPrompt,
                                    kMessages,
                                    kTools,
                                    kVariables,
                                    kContinues,
                                    kText,
                                    kValues,
                                    kSamples,
                                    kMaxValues,
                                    kMaxTime,
                                    kMaxQueueTime,
                                    kTemperature,
                                    kTopK,
                                    kTopP,
                                    kMinP,
                                    kRepetitionPenalty,
                                    kFrequencyPenalty,
                                    kPresencePenalty,
                                    kLogitBias,
                                    kStop,
                                    kStopText,
                                    kTopLogProbs,
                                    kKeep,
                                    kIncludeState,
                                    kExpectedPosition,
                                    kRequestId,
                                    kDeliveryMaxValues,
                                    kDeliveryMaxDelay,
                                    kId,
                                    kPosition,
                                    kChildren,
                                    kCount,
                                    kPageSize,
                                    kPageToken,
                                    kAllowInexact,
                                    kAnyOwner,
                                    kExpiresIn};

}  // namespace runnel::fields
