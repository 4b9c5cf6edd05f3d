// Messages of the wire to the engine's plain data and back. Checked here: only what plain data
// cannot say wrong. What depends on the model and the limits is the engine's to check.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "base/utf8.h"
#include "engine/request.h"
#include "engine/token_stream.h"
#include "models/text/tokenizer.h"
#include "runnel/v1/inference.pb.h"
#include "runnel/v1/sessions.pb.h"

namespace runnel {

// The session that a call starts from; none: a fresh sequence. NOT_FOUND for a stored state: there
// are none.
Result<std::optional<std::string>> session_of(const v1::Origin& origin);

// A duration of the wire, field `name` of the request; INVALID_ARGUMENT when it is malformed. What
// is longer than the engine can count is cut to that.
Result<Duration> duration_of(const google::protobuf::Duration& duration, const char* name);

// How text in a call becomes values.
struct TextInput {
  std::string model;                                     // its name
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // the model's; null: it has none
  int64_t at_most = limits::kTextBytes.default_value;    // bytes of one text
};

// A request; `delivery` is what holds where it does not say. INVALID_ARGUMENT for text where the
// model has no tokenizer, or for too much of it.
Result<GenerateRequest> request_of(const v1::GenerateRequest& message, const TextInput& input,
                                   const Delivery& delivery);

// The values of one chunk to score. INVALID_ARGUMENT for text as in request_of().
Result<std::vector<int32_t>> chunk_of(const v1::ScoreRequest& message, const TextInput& input);

// What the wire says of a session.
v1::Session session_message(const SessionInfo& session, const std::string& model,
                            int64_t state_bytes);

// Cuts the groups of a stream into messages: Started, then Values, then one Finished per sample. No
// message is larger than about kMessageTarget bytes, whatever the group holds. Where there is a
// tokenizer values go out as text too: each character with the value that completes it.
class GroupMessages {
 public:
  static constexpr size_t kMessageTarget = 256 << 10;

  // Before the first group; null, as without this call: values are no text.
  void write_text(std::shared_ptr<const Tokenizer> tokenizer) { tokenizer_ = std::move(tokenizer); }

  // The group to cut next; the one before is forgotten. `group` is the caller's, and must stay as
  // it is until next() has said false. `with_top`: the call has asked for top log-probabilities.
  void start(const StreamGroup& group, bool with_top);

  // Fills `message` with the next; false when there is none.
  bool next(v1::GenerateResponse& message);

 private:
  void add_values(v1::Values& values);
  size_t add_text(const StreamValue& value, v1::ValueRun& run);
  bool add_rest(const Finished& finished, v1::GenerateResponse& message);
  v1::ValueRun& run_of(const StreamValue& value, v1::Values& values);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Utf8Stream> texts_;  // by sample, as far as they have begun
  const StreamGroup* group_ = nullptr;
  bool with_top_ = false;
  bool started_ = false;   // Started has been given
  size_t value_ = 0;       // the next of group_->values
  size_t top_ = 0;         // the next of group_->top
  size_t finished_ = 0;    // the next of group_->finished
  std::vector<int> runs_;  // by sample: its last run in the message being made; -1: none
};

// The message for the end of a Score call.
v1::ScoreTotal total_of(int64_t values, double log_prob, const std::string& numerics);

}  // namespace runnel
