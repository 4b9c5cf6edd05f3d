// The format of a model's conversations: its templates, their traits, which were found by probing,
// and the conversion of their text to values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/work_limit.h"
#include "models/template/template_set.h"
#include "models/template/traits.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Never changes, so any thread may use it.
class ChatFormat {
 public:
  // Parses the templates and probes them. Errors are those of TemplateSet::parse(), and of probe()
  // if the templates refuse a plain conversation.
  static Result<std::shared_ptr<const ChatFormat>> make(const TemplateFiles& files,
                                                        std::shared_ptr<const Tokenizer> tokenizer);

  // The text of a conversation. Its messages may be in the form in which clients send them. Content
  // that the template does not accept is adapted first:
  // - arguments of tool calls that are JSON text become objects ("" becomes an empty one),
  // - content in parts, all of type text, becomes one text joined by "\n", unless the template
  //   accepts parts,
  // - a developer's message becomes a system message, unless the template supports developers,
  // - content that is null becomes "" in a message with tool calls, if the template needs content.
  // INVALID_ARGUMENT names the field of `messages` with arguments that are not a JSON object. Other
  // errors are those of TemplateSet::render().
  Result<MarkedText> render(Conversation conversation, WorkLimit limit = WorkLimit()) const;

  // The text of messages that follow an answer: the end of the answer, then the messages.
  // INVALID_ARGUMENT if the template makes it depend on the messages before the answer, or leaves
  // out the answer; other errors are those of render().
  Result<MarkedText> render_next(Conversation news, WorkLimit limit = WorkLimit()) const;

  // The values of a rendering, or of a part of one. No values are put before them. Errors are those
  // of Tokenizer::encode().
  Result<std::vector<int32_t>> encode(const MarkedText& text, WorkLimit limit = WorkLimit()) const;

  // The number of leading `values` with which the next turn of the conversation is likely to begin.
  // `values` belong to the conversation and the generation prompt; the next turn shares only the
  // values of the conversation. A token of text at their end is left out, because it could merge
  // with the next text. 0 if it cannot be determined.
  int64_t shared_with_next(Conversation conversation, std::span<const int32_t> values,
                           WorkLimit limit = WorkLimit()) const;

  const ChatTraits& traits() const { return traits_; }
  // The token that ends an answer, if the template writes one. It ends an answer in addition to the
  // model's eos.
  std::optional<int32_t> end_of_turn() const { return end_of_turn_; }
  // The text that ends an answer if no token does, such as "\n\nUser:". "": none is known.
  const std::string& stop_text() const { return stop_text_; }
  // The values that a new sequence reads before its first rendering.
  const std::vector<int32_t>& begin() const { return begin_; }
  // The name of the template's file, or "rwkv7-g1".
  const std::string& name() const { return templates_.name(); }

 private:
  ChatFormat(TemplateSet templates, ChatTraits traits, std::vector<int32_t> begin,
             std::shared_ptr<const Tokenizer> tokenizer);
  Status find_end_of_turn();

  const TemplateSet templates_;
  const ChatTraits traits_;
  const std::vector<int32_t> begin_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<int32_t> end_of_turn_;
  std::string stop_text_;
};

}  // namespace runnel
