// Cuts the groups of a token stream into events of a bounded size and assembles their text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "engine/token_stream.h"
#include "models/text/tokenizer.h"
#include "server/calls/call_event.h"

namespace runnel {

class GroupEvents {
 public:
  // The values of one event take at most about this many bytes on a wire.
  static constexpr size_t kEventTarget = 256 << 10;
  // The maximum memory, in bytes, that the values of one event take in all their forms: as runs,
  // as a message, and encoded. `room` is that of the stream.
  static int64_t bytes(int room, int top_log_probs);

  // - `tokenizer`: values are written as text, too. Each character comes with the value that
  //   completes it. Null: no text.
  // - `with_top`: the call asks for top log-probabilities.
  // - `eos`: values that end a sample. They have no text.
  explicit GroupEvents(std::shared_ptr<const Tokenizer> tokenizer = nullptr, bool with_top = false,
                       std::vector<int32_t> eos = {})
      : tokenizer_(std::move(tokenizer)), with_top_(with_top), eos_(std::move(eos)) {}

  // Begins with the next group. The caller must keep it until next() has returned none.
  void start(const StreamGroup& group);

  // The next event of the group, which is valid until the next call. None: there are no more
  // events.
  std::optional<GenerateEvent> next();
  // The event that next() will return, if it is the last one of the group and says how a sample
  // finished; otherwise null.
  const Finished* last_finished() const;

 private:
  SampledValues cut_values();
  size_t add_text(const StreamValue& value, ValueRun& run);
  bool ends_within_character(const Finished& finished) const;
  SampledValues rest_of_text(const Finished& finished);
  ValueRun& run_of(const StreamValue& value);
  ValueRun& add_run(int sample, int64_t position);
  SampledValues runs() const { return {std::span(runs_).first(used_)}; }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const bool with_top_;
  const std::vector<int32_t> eos_;
  std::vector<Utf8Stream> texts_;  // by sample, for samples that have begun
  const StreamGroup* group_ = nullptr;
  bool queued_ = false;   // Queued has been given
  bool started_ = false;  // Started has been given
  size_t value_ = 0;      // the next of group_->values
  size_t top_ = 0;        // the next of group_->top
  size_t finished_ = 0;   // the next of group_->finished

  // The event that is being made; its memory is reused.
  std::vector<ValueRun> runs_;
  size_t used_ = 0;            // of runs_
  std::vector<int> last_run_;  // by sample: its last run; -1: none
};

}  // namespace runnel
