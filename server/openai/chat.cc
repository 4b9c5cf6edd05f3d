#include "server/openai/chat.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "server/openai/answer.h"
#include "server/openai/chat_conversation.h"
#include "server/openai/chat_json.h"
#include "server/openai/chat_request.h"
#include "server/openai/chat_sample.h"
#include "server/openai/words.h"

namespace runnel {
namespace {

class ChatChoice final : public AnswerChoice {
 public:
  ChatChoice(const ChatJson& json, ChatSample sample, int index, bool stream, bool one_call)
      : json_(json),
        index_(index),
        stream_(stream),
        one_call_(one_call),
        sample_(std::move(sample)) {}

  void add(const ValueRun& run) override {
    sample_.add(run);
    take_events();
  }

  bool is_over() const override { return sample_.is_over(); }

  void finish(const ChoiceEnd& end) override {
    sample_.finish();
    take_events();
    end_ = end;
  }

  std::string events() override {
    std::string events;
    if (!std::exchange(begun_, true)) {
      events = json_.chunk(index_, {{"role", "assistant"}, {"content", ""}}, {});
    }
    auto tokens = sample_.take_tokens();
    for (const OrderedJson& delta : std::exchange(deltas_, {})) {
      events += json_.chunk(index_, delta, std::exchange(tokens, {}));
    }
    if (!tokens.empty()) events += json_.chunk(index_, OrderedJson::object(), tokens);
    if (end_) events += json_.chunk(index_, OrderedJson::object(), {}, &*end_, reason());
    return events;
  }

  std::string whole() override {
    return json_.choice(index_, message_, sample_.take_tokens(), *end_, reason());
  }

  int64_t bytes() const override {
    auto bytes = static_cast<int64_t>(message_.content.capacity() + message_.thinking.capacity());
    for (const AnsweredToolCall& call : message_.calls) {
      bytes += static_cast<int64_t>(sizeof(call) + call.call.arguments.capacity());
    }
    return sample_.bytes() + bytes;
  }

  int64_t reasoning_tokens() const override { return sample_.reasoning_tokens(); }

 private:
  const char* reason() const {
    if (calls_ > 0 && (end_->stopped() || one_call_)) return "tool_calls";
    return end_->stopped() ? "stop" : "length";
  }

  void take_events() {
    for (ChatEvent& event : sample_.take_events()) {
      if (event.kind == ChatEvent::Kind::kCall) {
        take_call(AnsweredToolCall(std::move(event.call)));
        continue;
      }
      const bool thinks = event.kind == ChatEvent::Kind::kThinking;
      if (stream_) {
        deltas_.push_back({{thinks ? "reasoning_content" : "content", std::move(event.text)}});
      } else {
        (thinks ? message_.thinking : message_.content) += event.text;
      }
    }
  }

  void take_call(AnsweredToolCall call) {
    if (stream_) {
      deltas_.push_back(call_name_delta(calls_, call));
      deltas_.push_back(call_arguments_delta(calls_, call));
    } else {
      message_.calls.push_back(std::move(call));
    }
    ++calls_;
  }

  const ChatJson& json_;
  const int index_;
  const bool stream_, one_call_;
  ChatSample sample_;
  std::vector<OrderedJson> deltas_;  // of a stream: not sent yet
  ChatMessage message_;              // of an answer that is not streamed
  int calls_ = 0;
  bool begun_ = false;
  std::optional<ChoiceEnd> end_;
};

class Chat final : public AnswerKind {
 public:
  explicit Chat(const ServerContext& state) : state_(state) {}

  int64_t bytes_to_read(std::string_view body) const override {
    return ChatConversation::bytes_to_read(body);
  }

  Fault read(const Caller& /*caller*/, std::string_view body, AnswerRequest& request) override {
    Result<OrderedJson> json = parse_chat_body(body);
    if (!json.ok()) return {json.status()};
    Fault fault = read_chat(std::move(*json), state_.chat_values, request_);
    request = request_.answer;
    return fault;
  }

  Fault open(const ServedModel& model, const AnswerRequest& request) override {
    if (Fault fault = conversation_.open(model, request_); !fault.ok()) return fault;
    json_.emplace(ChatJson::Options{.created = state_.clock.unix_time(),
                                    .model = model.name,
                                    .numerics = model.engine->numerics(),
                                    .tokenizer = model.tokenizer,
                                    .stream = request.stream,
                                    .logprobs = request.logprobs,
                                    .token_ids = request.return_token_ids,
                                    .usage_last = request.include_usage});
    return {};
  }

  int64_t bytes_kept() const override { return ChatConversation::bytes_kept(request_); }

  size_t prompts() const override { return 1; }
  Fault prepare(size_t /*prompt*/, const TextInput& input, AnswerPrompt& made) override {
    return conversation_.prepare(request_, input, made);
  }

  std::unique_ptr<AnswerChoice> choice(size_t /*prompt*/, int index,
                                       const std::vector<std::string>& stops) const override {
    ChatSample sample(conversation_.options(request_), conversation_.prompt_end(), stops,
                      json_->wants_tokens());
    return std::make_unique<ChatChoice>(*json_, std::move(sample), index, request_.answer.stream,
                                        request_.one_call);
  }

  std::string whole(const std::string& choices, const AnswerUsage& usage) const override {
    return json_->whole(choices, usage);
  }
  std::string last_events(const AnswerUsage& usage) const override {
    return json_->last_events(usage);
  }
  Fault fault(const Status& status) const override {
    return fault_of(status, [this](std::string_view field) {
      return field == fields::kMaxValues ? request_.length_field : chat_word(field);
    });
  }

 private:
  const ServerContext& state_;
  ChatRequest request_;
  ChatConversation conversation_{chat_word};
  std::optional<ChatJson> json_;
};

}  // namespace

void start_chat(ServerContext& state, const HttpRequest& request, HttpReply reply) {
  start_answer(state, "openai.chat", std::make_unique<Chat>(state), request, std::move(reply));
}

}  // namespace runnel
