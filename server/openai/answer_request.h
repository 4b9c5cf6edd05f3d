// The fields that /v1/completions, /v1/chat/completions and /v1/responses share.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "engine/request.h"
#include "server/calls/state_token.h"
#include "server/http/request_fields.h"

namespace runnel {

struct AnswerRequest {
  std::string model;                       // empty: the only model
  GenerateRequest call;                    // without the prompt and the fields that need the model
  std::optional<Duration> max_queue_time;  // of each prompt; none: the server's default
  std::optional<int> logprobs;  // most likely values to list for each value; none: no list
  bool stream = false;
  bool include_usage = false;  // the last chunk of a stream has the usage
  bool return_token_ids = false;
  TokenUse token;

  bool wants_tokens() const { return logprobs || return_token_ids; }
};

// Each of these functions reads some fields of a request's body.

// `stop`: a text or a list of texts, no more and no longer than the engine takes. The engine
// refuses an empty text.
void read_stop(RequestFields& fields, AnswerRequest& request);
// `stream`, `stream_options`, `return_token_ids`.
void read_answer_form(RequestFields& fields, AnswerRequest& request);
// `max_queue_time`, `state`, `ignore_eos`: beyond OpenAI's API.
void read_extensions(RequestFields& fields, AnswerRequest& request);
// `state_token`, `include_state`: beyond OpenAI's API, for one prompt.
void read_tokens(RequestFields& fields, AnswerRequest& request);
// `keep`, `position`: beyond OpenAI's API, for endpoints whose answers name sessions.
void read_keeping(RequestFields& fields, AnswerRequest& request);
// Accepts fields of OpenAI's API that change nothing here, with any value.
void read_harmless(RequestFields& fields);

}  // namespace runnel
