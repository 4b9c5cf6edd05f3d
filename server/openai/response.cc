#include "server/openai/response.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/ordered_json.h"
#include "base/text.h"
#include "server/host/chat_input.h"
#include "server/http/header_text.h"
#include "server/openai/answer.h"
#include "server/openai/chat_conversation.h"
#include "server/openai/chat_request.h"
#include "server/openai/chat_sample.h"
#include "server/openai/response_items.h"
#include "server/openai/response_output.h"
#include "server/openai/response_request.h"
#include "server/openai/words.h"

namespace runnel {
namespace {

constexpr JsonLimits kStoredLimits{INT64_MAX, INT64_MAX, 64};  // for text that this server wrote
constexpr size_t kShownId = 80;

Fault no_response(const std::string& id) {
  return {not_found("there is no response " + quote(id, kShownId) +
                    ": this server keeps one for an hour after its last use, while there is room"),
          "response_id"};
}

class Sample final : public AnswerChoice {
 public:
  Sample(ResponseOutput& output, ChatSample sample, bool one_call)
      : output_(output), sample_(std::move(sample)), one_call_(one_call) {}

  void add(const ValueRun& run) override {
    sample_.add(run);
    take();
  }

  bool is_over() const override { return sample_.is_over(); }

  void finish(const ChoiceEnd& end) override {
    sample_.finish();
    take();
    output_.finish(end.stopped() || (one_call_ && called_), end.state_token);
  }

  std::string events() override { return output_.take_events(); }
  std::string whole() override { return ""; }  // the output has the text
  int64_t bytes() const override { return sample_.bytes() + output_.bytes(); }
  int64_t reasoning_tokens() const override { return sample_.reasoning_tokens(); }

 private:
  void take() {
    output_.add_tokens(sample_.take_spoken_tokens());
    for (ChatEvent& event : sample_.take_events()) {
      if (event.kind == ChatEvent::Kind::kCall) {
        output_.call(AnsweredToolCall(std::move(event.call)), event.end);
        called_ = true;
      } else {
        output_.say(event.kind, event.text, event.end);
      }
    }
  }

  ResponseOutput& output_;
  ChatSample sample_;
  const bool one_call_;
  bool called_ = false;
};

class Response final : public AnswerKind {
 public:
  Response(ServerContext& state, std::shared_ptr<ResponseStore> store)
      : state_(state), store_(std::move(store)) {}

  int64_t bytes_to_read(std::string_view body) const override {
    return ChatConversation::bytes_to_read(body);
  }

  Fault read(const Caller& caller, std::string_view body, AnswerRequest& request) override {
    Result<OrderedJson> json = parse_chat_body(body);
    if (!json.ok()) return {json.status()};
    owner_ = caller.name;
    const Recall recall = [this](const std::string& id, OrderedJson& messages) {
      return recall_response(id, messages);
    };
    Fault fault = read_response(std::move(*json), state_.chat_values, recall, request_);
    request = request_.chat.answer;
    return fault;
  }

  Fault open(const ServedModel& model, const AnswerRequest& request) override {
    if (Fault fault = conversation_.open(model, request_.chat); !fault.ok()) return fault;
    output_ = std::make_unique<ResponseOutput>(
        ResponseOutput::Options{.created = state_.clock.unix_time(),
                                .model = model.name,
                                .tokenizer = model.tokenizer,
                                .stream = request.stream,
                                .logprobs = request.logprobs.has_value(),
                                .echo = std::exchange(request_.echo, nullptr)});
    return {};
  }

  int64_t bytes_kept() const override {
    return ChatConversation::bytes_kept(request_.chat) + std::ssize(request_.kept) +
           output_->bytes_repeated();
  }

  size_t prompts() const override { return 1; }
  Fault prepare(size_t /*prompt*/, const TextInput& input, AnswerPrompt& made) override {
    Fault fault = conversation_.prepare(request_.chat, input, made);
    recalled_ = {};
    return fault;
  }

  std::unique_ptr<AnswerChoice> choice(size_t /*prompt*/, int /*index*/,
                                       const std::vector<std::string>& stops) const override {
    ChatSample sample(conversation_.options(request_.chat), conversation_.prompt_end(), stops,
                      request_.chat.answer.wants_tokens());
    return std::make_unique<Sample>(*output_, std::move(sample), request_.chat.one_call);
  }

  std::string whole(const std::string& /*choices*/, const AnswerUsage& usage) const override {
    std::string text = output_->whole(usage);
    store(text);
    return text;
  }
  // Stores the response first, because a client may continue it as soon as the event has arrived.
  std::string last_events(const AnswerUsage& usage) const override {
    store(output_->whole(usage));
    return output_->last_events(usage);
  }
  std::string failure_events(const Fault& fault) const override {
    return output_->failure_events(fault);
  }
  Fault fault(const Status& status) const override { return fault_of(status, response_word); }

 private:
  Fault recall_response(const std::string& id, OrderedJson& messages) {
    const auto found = store_->find(owner_, id, state_.clock.now());
    if (found == nullptr) {
      return {not_found("previous_response_id is " + quote(id, kShownId) +
                        ", which this server does not have: it keeps a response for an hour after "
                        "its last use, while there is room; send the earlier items in input"),
              "previous_response_id"};
    }
    auto room = state_.memory.take(
        rendering_bytes(std::ssize(found->messages) + std::ssize(found->response)));
    if (!room.ok()) return {room.status()};
    recalled_ = std::move(*room);
    auto earlier = parse_ordered_json(found->messages, "", kStoredLimits);
    auto response = parse_ordered_json(found->response, "", kStoredLimits);
    if (!earlier.ok() || !response.ok()) {
      return {invalid_argument("previous_response_id is of a response that is too long to "
                               "continue"),
              "previous_response_id"};
    }
    messages = std::move(*earlier);
    return read_input(std::move((*response)["output"]), messages);
  }

  void store(const std::string& response) const {
    if (request_.kept.empty()) return;
    store_->put(owner_, output_->id(), {request_.kept, response}, state_.clock.now());
  }

  ServerContext& state_;
  const std::shared_ptr<ResponseStore> store_;
  std::string owner_;
  ResponseRequest request_;
  MemoryBudget::Hold recalled_;  // until the conversation is rendered
  ChatConversation conversation_{response_word};
  std::unique_ptr<ResponseOutput> output_;  // of the one sample
};

}  // namespace

void start_response(ServerContext& state, std::shared_ptr<ResponseStore> store,
                    const HttpRequest& request, HttpReply reply) {
  start_answer(state, "openai.responses", std::make_unique<Response>(state, std::move(store)),
               request, std::move(reply));
}

Fault get_response(ShortCall& call, ResponseStore& store) {
  const std::string id = unescaped(call.request.part);
  const auto found = store.find(call.caller.name, id, call.state.clock.now());
  if (found == nullptr) return no_response(id);
  if (Status s = call.reserve(kTreePerByte * std::ssize(found->response)); !s.ok()) return {s};
  auto response = parse_ordered_json(found->response, "response", kStoredLimits);
  if (!response.ok()) return {response.status()};
  call.answer = std::move(*response);
  return {};
}

Fault delete_response(ShortCall& call, ResponseStore& store) {
  const std::string id = unescaped(call.request.part);
  if (!store.erase(call.caller.name, id, call.state.clock.now())) return no_response(id);
  call.answer = {{"id", id}, {"object", "response"}, {"deleted", true}};
  return {};
}

}  // namespace runnel
