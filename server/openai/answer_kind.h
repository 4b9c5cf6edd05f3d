// The interface between the code that runs prompts (answer.h) and the endpoints. An endpoint reads
// the body of a request, and writes the choices of the answer.
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
  std::string session = {};      // the session that continues it; empty: none
  int64_t position = 0;          // the position of its next value
  std::string state_token = {};  // in base64; empty: not requested

  // Whether it ended by a stop text or by the model's own end. Otherwise it was cut off.
  bool stopped() const { return reason == FinishReason::kStop || reason == FinishReason::kEos; }
};

// The values that a call begins with.
struct AnswerPrompt {
  std::vector<int32_t> values = {};
  std::optional<NextTurn> turn = {};        // GenerateRequest::turn
  bool begin = false;                       // GenerateRequest::begin
  std::optional<int64_t> shared = {};       // GenerateRequest::shared
  std::optional<int> scored = {};           // score the prompt first, with this top_log_probs
  std::vector<std::string> stop = {};       // more texts that end the answer
  std::optional<int32_t> end_of_turn = {};  // GenerateRequest::end_of_turn
};

// One choice. Only the thread that has the turn of its call uses it.
class AnswerChoice {
 public:
  virtual ~AnswerChoice() = default;

  virtual void add(const ValueRun& run) = 0;
  // Whether the sample may finish, because more values would change nothing.
  virtual bool is_over() const { return false; }
  // To be called when the sample has ended.
  virtual void finish(const ChoiceEnd& end) = 0;
  // The events of a stream that may be sent and have not been taken. After finish(), the last ones.
  virtual std::string events() = 0;
  // The member of "choices" in a whole answer. Only after finish().
  virtual std::string whole() = 0;
  // About how many bytes this holds. If the next event of a stream can be much longer than the run
  // that it is made of, as with an echo, its bytes count, too.
  virtual int64_t bytes() const = 0;
  // How many sampled values are thinking. Only after finish().
  virtual int64_t reasoning_tokens() const { return 0; }
};

class AnswerKind {
 public:
  virtual ~AnswerKind() = default;

  // --- The request, in this order, once each ---

  // The bytes of memory that reading and preparing a request with this body takes temporarily.
  virtual int64_t bytes_to_read(std::string_view body) const = 0;
  virtual Fault read(const Caller& caller, std::string_view body, AnswerRequest& request) = 0;
  // `request` is the request from read(), and `model` is the model that it names. Both must outlive
  // the object.
  virtual Fault open(const ServedModel& model, const AnswerRequest& request) = 0;

  // The bytes of memory that this holds from open() until the answer ends, without its choices. In
  // a stream, they include the events with which the answer begins.
  virtual int64_t bytes_kept() const { return 0; }

  // --- Prompts, after open() ---

  virtual size_t prompts() const = 0;
  // The bytes of memory that the choices of a prompt take before anything is sampled. In a stream,
  // they include the events with which the choices begin.
  virtual int64_t bytes_of_choices(size_t /*prompt*/) const { return 0; }
  // Makes the values of a prompt. To be called once for each prompt.
  virtual Fault prepare(size_t prompt, const TextInput& input, AnswerPrompt& made) = 0;
  // A choice of a prepared prompt. `index` counts the choices of all prompts. `stops` must outlive
  // the choice.
  virtual std::unique_ptr<AnswerChoice> choice(size_t prompt, int index,
                                               const std::vector<std::string>& stops) const = 0;
  // Gets the scores of a prompt, before anything is sampled.
  virtual void take_scores(const std::vector<int32_t>& /*prompt*/, const ScoredChunk& /*scores*/,
                           std::span<const std::unique_ptr<AnswerChoice>> /*choices*/) const {}

  // --- The answer ---

  // The whole answer. `choices` are joined by commas.
  virtual std::string whole(const std::string& choices, const AnswerUsage& usage) const = 0;
  // The end of a stream, with the usage if the request asks for it.
  virtual std::string last_events(const AnswerUsage& usage) const = 0;
  // The end of a stream that fails after it has begun.
  virtual std::string failure_events(const Fault& fault) const {
    return event_of(error_json(fault));
  }
  // A status with the field names of this endpoint.
  virtual Fault fault(const Status& status) const = 0;
};

}  // namespace runnel
