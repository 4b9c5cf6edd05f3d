// The seam between how prompts run (answer.h) and what an endpoint makes of them: how it reads a
// body, and how it writes choices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/calls/call_event.h"
#include "server/host/served_models.h"
#include "server/host/text_input.h"
#include "server/http/event_stream.h"
#include "server/http/fault.h"
#include "server/openai/answer_request.h"

namespace runnel {

struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of prompt_tokens: not read, because a state was kept after them
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of completion_tokens
};

// How a choice ended.
struct ChoiceEnd {
  FinishReason reason = FinishReason::kLength;
  std::string session = {};      // in which it continues; empty: in none
  int64_t position = 0;          // of its next value
  std::string state_token = {};  // in base64; empty: not asked for

  // By a stop text, or where the model ends a text; else it was cut off.
  bool stopped() const { return reason == FinishReason::kStop || reason == FinishReason::kEos; }
};

// The values that a call begins with.
struct AnswerPrompt {
  std::vector<int32_t> values = {};
  std::optional<NextTurn> turn = {};        // GenerateRequest::turn
  bool begin = false;                       // after the spec's first value, in a fresh sequence
  std::optional<int64_t> shared = {};       // GenerateRequest::shared
  std::optional<int> scored = {};           // scored first, with this many most likely values each
  std::vector<std::string> stop = {};       // texts that end the answer, besides the request's
  std::optional<int32_t> end_of_turn = {};  // a value that does
};

// One choice. Only the thread that has its call's turn touches it.
class AnswerChoice {
 public:
  virtual ~AnswerChoice() = default;

  virtual void add(const ValueRun& run) = 0;
  // More values would change nothing: the sample may finish.
  virtual bool is_over() const { return false; }
  // The sample has ended.
  virtual void finish(const ChoiceEnd& end) = 0;
  // Of a stream: the events that may go out and have not. After finish(), the last.
  virtual std::string events() = 0;
  // Of a whole answer: the member of "choices", after finish().
  virtual std::string whole() = 0;
  // About how many bytes this holds.
  virtual int64_t bytes() const = 0;
  // Sampled values that are thinking; after finish().
  virtual int64_t reasoning_tokens() const { return 0; }
};

class AnswerKind {
 public:
  virtual ~AnswerKind() = default;

  // --- The request, in this order, once each ---

  // Bytes of memory that reading and preparing a request with such a body takes for a moment.
  virtual int64_t bytes_to_read(std::string_view body) const = 0;
  virtual Fault read(const Caller& caller, std::string_view body, AnswerRequest& request) = 0;
  // `request` is what read() made, and the model is the one that it names. Both outlive this.
  virtual Fault open(const ServedModel& model, const AnswerRequest& request) = 0;

  // --- Prompts, after open() ---

  virtual size_t prompts() const = 0;
  // Bytes of memory that a prompt's choices take before anything is sampled.
  virtual int64_t bytes_of_choices(size_t prompt) const = 0;
  // Makes the values of a prompt, once.
  virtual Fault prepare(size_t prompt, const TextInput& input, AnswerPrompt& made) = 0;
  // A choice of a prepared prompt; `index` counts those of all prompts. `stops` outlives it.
  virtual std::unique_ptr<AnswerChoice> choice(size_t prompt, int index,
                                               const std::vector<std::string>& stops) const = 0;
  // The scores of a prompt came, before anything is sampled.
  virtual void take_scores(const std::vector<int32_t>& /*prompt*/, const ScoredChunk& /*scores*/,
                           std::span<const std::unique_ptr<AnswerChoice>> /*choices*/) const {}

  // --- The answer ---

  // Of choices joined by commas.
  virtual std::string whole(const std::string& choices, const AnswerUsage& usage) const = 0;
  // Of a stream: the end, with the usage where that was asked for.
  virtual std::string last_events(const AnswerUsage& usage) const = 0;
  // Of a stream that fails after it has begun: the end.
  virtual std::string failure_events(const Fault& fault) const {
    return event_of(error_json(fault));
  }
  // A status in the words of this endpoint.
  virtual Fault fault(const Status& status) const = 0;
};

}  // namespace runnel
