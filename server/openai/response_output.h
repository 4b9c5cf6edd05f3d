// The answers of /v1/responses, as text: a list of items, and the events of a stream that builds
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "models/text/tokenizer.h"
#include "server/http/fault.h"
#include "server/openai/answer_kind.h"
#include "server/openai/chat_sample.h"

namespace runnel {

class ResponseOutput {
 public:
  struct Options {
    int64_t created = 0;  // seconds since 1970
    std::string model;
    std::shared_ptr<const Tokenizer> tokenizer;
    bool stream = false;
    bool logprobs = false;
    OrderedJson echo = OrderedJson::object();  // members that repeat the request
  };
  // Draws an id. A stream has its first two events.
  explicit ResponseOutput(Options options);

  // --- The output of the sample, in its order ---

  // Adds values whose text is in the next say() and call(), if the request asks for
  // log-probabilities.
  void add_tokens(std::vector<ChoiceToken> tokens);
  // Adds thinking or content. Opens an item, unless the last one is of this kind. `end`: as in
  // ChatEvent. The values that begin before it are those of the content.
  void say(ChatEvent::Kind kind, std::string_view text, int64_t end);
  // Adds a call, and drops its values.
  void call(const AnsweredToolCall& call, int64_t end);
  // To be called when the sample has ended. `complete`: no limit has cut it off. `state_token`: in
  // base64; empty: none.
  void finish(bool complete, std::string state_token);

  // --- The answer ---

  const std::string& id() const { return id_; }
  // The events of a stream that have not been taken.
  std::string take_events();
  // Only after finish().
  std::string whole(const AnswerUsage& usage) const;
  std::string last_events(const AnswerUsage& usage);
  std::string failure_events(const Fault& fault);

  // The approximate bytes of this object and of the last event, without the state token and without
  // bytes_repeated().
  int64_t bytes() const;
  // The approximate bytes of the members that repeat the request, and of the events that have them.
  int64_t bytes_repeated() const;

 private:
  struct Item {
    ChatEvent::Kind kind = ChatEvent::Kind::kContent;
    std::string id;
    std::string text;
    std::vector<ChoiceToken> tokens;
    size_t told = 0;  // how many tokens have been sent with a delta
  };

  // Takes the pending values that begin before `end`.
  std::vector<ChoiceToken> take_pending(int64_t end);
  void open(ChatEvent::Kind kind);
  void close(const char* status);
  OrderedJson item_json(const Item& item, const char* status, bool with_content) const;
  OrderedJson part_json(const Item& item) const;
  OrderedJson logprobs_json(const std::vector<ChoiceToken>& tokens, size_t from) const;
  // Queues an event of the stream.
  void event(const char* type, const OrderedJson& members);
  // The same for an item.
  void item_event(const char* type, OrderedJson item);
  void text_event(const char* type, const char* key, OrderedJson value);
  void response_event(const char* type, const OrderedJson& members);
  void add_item(const OrderedJson& item);
  // The response in its present state.
  std::string response_json(const OrderedJson& members) const;
  OrderedJson end_json(const AnswerUsage& usage) const;

  const Options options_;
  const std::string id_;
  std::string items_;       // the complete items, joined by commas
  int count_ = 0;           // the number of complete items
  std::vector<Item> open_;  // at most one
  std::vector<ChoiceToken> pending_;
  int64_t token_bytes_ = 0;  // of all tokens
  bool complete_ = false;
  std::string state_token_;
  int64_t sequence_ = 0;  // of the next event
  std::string events_;
};

}  // namespace runnel
