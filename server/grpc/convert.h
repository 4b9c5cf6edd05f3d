// Converts messages of the wire to the engine's plain data and back. The code here checks only for
// values that the plain data cannot represent. The engine checks everything that depends on the
// model and limits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "runnel/v1/inference.pb.h"
#include "runnel/v1/models.pb.h"
#include "runnel/v1/sessions.pb.h"
#include "server/calls/call_event.h"
#include "server/host/served_models.h"
#include "server/host/text_input.h"

namespace runnel {

// Where a call starts.
Origin start_of(const v1::Origin& origin);

// A duration of the wire in `field` of the request. INVALID_ARGUMENT if it is malformed. A duration
// that is too long for `Duration` becomes the longest one.
Result<Duration> duration_of(const google::protobuf::Duration& duration, std::string_view field);

// A request, without its conversation (conversation.h). `delivery`: the default for its delivery.
// INVALID_ARGUMENT if it has text and the model has no tokenizer, or if the text is too long.
Result<GenerateRequest> request_of(const v1::GenerateRequest& message, const TextInput& input,
                                   const Delivery& delivery);

// The values of one chunk to score. INVALID_ARGUMENT for text as in request_of().
Result<std::vector<int32_t>> chunk_of(const v1::ScoreRequest& message, const TextInput& input);

// A session of `model` as a message.
v1::Session session_message(const SessionInfo& session, const ServedModel& model);

// A served model as a message of at most its described_bytes.
v1::ModelInfo model_message(const ServedModel& model, const std::vector<std::string>& aliases);

// Sets `message` to the event, and reuses its memory.
void encode(const GenerateEvent& event, v1::GenerateResponse& message);
void encode(const ScoreEvent& event, v1::ScoreResponse& message);

}  // namespace runnel
