#include "server/openai/completion.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/utf8.h"
#include "server/http/request_fields.h"
#include "server/openai/answer.h"
#include "server/openai/choice.h"
#include "server/openai/completion_json.h"
#include "server/openai/completion_request.h"
#include "server/openai/words.h"

namespace runnel {
namespace {

// The next event of a stream has all text that a choice holds. A byte may be escaped as six
// (\u0000).
constexpr int64_t kEscapedByte = 6;

// The bytes that echo_of() may return.
int64_t echo_bytes(const CompletionPrompt& prompt, const Tokenizer* tokenizer) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return std::ssize(*text);
  if (tokenizer == nullptr) return 0;
  int64_t bytes = 0;
  for (const int32_t value : std::get<std::vector<int32_t>>(prompt)) {
    bytes += std::ssize(tokenizer->bytes(value));
  }
  return Utf8Stream::kMostPerByte * bytes;
}

// The tokens of a prompt, with log-probabilities for all, or for all but the first, which nothing
// predicts. `starts`: the prompt begins its sequence. `text` is set to their text.
std::vector<ChoiceToken> echoed_tokens(const std::vector<int32_t>& prompt,
                                       const ScoredChunk& scores, bool starts,
                                       const Tokenizer* tokenizer, std::string& text) {
  const size_t first = prompt.size() - scores.log_probs.size();
  const auto top_count = static_cast<size_t>(scores.top_log_probs);
  std::vector<ChoiceToken> tokens(prompt.size());
  Utf8Stream characters;
  for (size_t i = 0; i < prompt.size(); ++i) {
    ChoiceToken& token = tokens[i];
    token.value = prompt[i];
    token.begin = std::ssize(text);
    if (tokenizer != nullptr) characters.add(tokenizer->bytes(prompt[i], starts && i == 0), text);
    token.log_prob.reset();
    if (i < first) continue;
    token.log_prob = scores.log_probs[i - first];
    const auto top = std::span(scores.top).subspan((i - first) * top_count, top_count);
    token.top.assign(top.begin(), top.end());
  }
  characters.end(text);
  return tokens;
}

// The text of a prompt, for a choice that begins with it. `starts`: the prompt begins its sequence.
std::string echo_of(const CompletionPrompt& prompt, bool starts, const Tokenizer* tokenizer) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  std::string text;
  if (tokenizer == nullptr) return text;
  Utf8Stream characters;
  const auto& values = std::get<std::vector<int32_t>>(prompt);
  for (size_t i = 0; i < values.size(); ++i) {
    characters.add(tokenizer->bytes(values[i], starts && i == 0), text);
  }
  characters.end(text);
  return text;
}

Result<std::vector<int32_t>> values_of(CompletionPrompt prompt, const TextInput& input) {
  const auto* text = std::get_if<std::string>(&prompt);
  if (text == nullptr) return std::get<std::vector<int32_t>>(std::move(prompt));
  if (text->empty()) return std::vector<int32_t>();
  return values_of_text(*text, input);
}

class CompletionAnswer final : public AnswerChoice {
 public:
  CompletionAnswer(const CompletionFormat& format, int index, bool stream,
                   const std::vector<std::string>& stops)
      : format_(format), index_(index), stream_(stream), choice_(stops, format.wants_tokens()) {}

  void begin(std::string_view text, std::vector<ChoiceToken> tokens = {}) {
    choice_.begin(text, std::move(tokens));
  }

  void add(const ValueRun& run) override { choice_.add(run); }
  void finish(const ChoiceEnd& end) override {
    choice_.finish();
    end_ = end;
  }
  std::string events() override {
    const ChoicePart part = choice_.take();
    if (part.empty() && !end_) return "";
    return format_.chunk(format_.choice(index_, part, end_ ? &*end_ : nullptr));
  }
  std::string whole() override { return format_.choice(index_, choice_.take(), &*end_); }
  int64_t bytes() const override { return (stream_ ? 1 + kEscapedByte : 1) * choice_.bytes(); }

 private:
  const CompletionFormat& format_;
  const int index_;
  const bool stream_;
  CompletionChoice choice_;
  std::optional<ChoiceEnd> end_;
};

class Completion final : public AnswerKind {
 public:
  explicit Completion(const Clock& clock) : clock_(clock) {}

  int64_t bytes_to_read(std::string_view body) const override { return parsed_bytes(body); }

  Fault read(const Caller& /*caller*/, std::string_view body, AnswerRequest& request) override {
    const Result<Json> json = parse_body(body);
    if (!json.ok()) return {json.status()};
    Fault fault = read_completion(*json, request_);
    request = request_.answer;
    return fault;
  }

  Fault open(const ServedModel& model, const AnswerRequest& request) override {
    const bool has_text = model.tokenizer != nullptr;
    format_.emplace(CompletionFormat::Options{.created = clock_.unix_time(),
                                              .model = model.name,
                                              .numerics = model.engine->numerics(),
                                              .tokenizer = model.tokenizer,
                                              .logprobs = request.logprobs,
                                              .token_ids = request.return_token_ids || !has_text,
                                              .usage_last = request.include_usage});
    return {};
  }

  size_t prompts() const override { return request_.prompts.size(); }

  int64_t bytes_of_choices(size_t prompt) const override {
    if (!request_.echo) return 0;
    const int64_t echo = echo_bytes(request_.prompts[prompt], format_->tokenizer());
    const int64_t samples = request_.answer.call.samples;
    const int64_t events = request_.answer.stream ? kEscapedByte * samples : 0;
    return (samples + 1 + events) * echo;
  }

  Fault prepare(size_t prompt, const TextInput& input, AnswerPrompt& made) override {
    CompletionPrompt& given = request_.prompts[prompt];
    const bool echoes_text = request_.echo && !request_.answer.logprobs;
    if (echoes_text) echo_ = echo_of(given, starts(), format_->tokenizer());
    made.begin = std::holds_alternative<std::string>(given);
    auto values = values_of(std::move(given), input);
    if (!values.ok()) return fault(values.status());
    made.values = std::move(*values);
    if (request_.echo && !made.values.empty()) made.scored = request_.answer.logprobs;
    return {};
  }

  std::unique_ptr<AnswerChoice> choice(size_t /*prompt*/, int index,
                                       const std::vector<std::string>& stops) const override {
    auto choice =
        std::make_unique<CompletionAnswer>(*format_, index, request_.answer.stream, stops);
    choice->begin(echo_);
    return choice;
  }

  void take_scores(const std::vector<int32_t>& prompt, const ScoredChunk& scores,
                   std::span<const std::unique_ptr<AnswerChoice>> choices) const override {
    std::string text;
    const auto tokens = echoed_tokens(prompt, scores, starts(), format_->tokenizer(), text);
    for (const auto& choice : choices) static_cast<CompletionAnswer&>(*choice).begin(text, tokens);
  }

  std::string whole(const std::string& choices, const AnswerUsage& usage) const override {
    return format_->whole(choices, usage);
  }
  std::string last_events(const AnswerUsage& usage) const override {
    return format_->last_chunk(usage);
  }
  Fault fault(const Status& status) const override { return fault_of(status, completion_word); }

 private:
  // Whether the prompts begin new sequences.
  bool starts() const {
    const AnswerRequest& answer = request_.answer;
    return !answer.call.session && !answer.call.state && !answer.token.given;
  }

  const Clock& clock_;
  CompletionRequest request_;
  std::optional<CompletionFormat> format_;
  std::string echo_;  // of the last prepared prompt
};

}  // namespace

void start_completion(ServerContext& state, const HttpRequest& request, HttpReply reply) {
  start_answer(state, "openai.completions", std::make_unique<Completion>(state.clock), request,
               std::move(reply));
}

}  // namespace runnel
