// How a model's conversations are written: its templates, what probes found out about them, and the
// values that their text becomes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "models/template/template_set.h"
#include "models/template/traits.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Never changes once made: any thread may use it.
class ChatFormat {
 public:
  // Parses the templates and probes them. Errors as of TemplateSet::parse(), and of probe() where
  // the templates refuse a plain conversation.
  static Result<std::shared_ptr<const ChatFormat>> make(const TemplateFiles& files,
                                                        std::shared_ptr<const Tokenizer> tokenizer);

  // The text of a conversation, whose messages may be as clients send them. What the template does
  // not take is adapted first:
  // - arguments of tool calls that are JSON text become objects ("" an empty one),
  // - content in parts, all of type text, becomes one text joined by "\n", unless the template
  //   takes parts,
  // - a developer's message becomes a system message, unless the template knows developers,
  // - content that is null becomes "" beside tool calls, where the template needs one.
  // INVALID_ARGUMENT names the field of `messages` with arguments that are not a JSON object; other
  // errors as of TemplateSet::render().
  Result<MarkedText> render(Conversation conversation, TimePoint until = TimePoint::max()) const;

  // The text of messages as it follows an answer, whatever came before that: the end of the answer,
  // then the messages. INVALID_ARGUMENT where the template does not write it; other errors as of
  // render().
  Result<MarkedText> render_next(Conversation news, TimePoint until = TimePoint::max()) const;

  // The values of a rendering, or of a part of one. Nothing is put before them. Errors as of
  // Tokenizer::encode().
  Result<std::vector<int32_t>> encode(const MarkedText& text,
                                      TimePoint until = TimePoint::max()) const;

  // How many of `values`, which a conversation became with the words that ask for an answer, its
  // next turn is likely to begin with: those of the conversation alone. A token of text at their
  // end is left out, because it could merge with what follows. 0 where that cannot be told.
  int64_t shared_with_next(Conversation conversation, std::span<const int32_t> values,
                           TimePoint until = TimePoint::max()) const;

  const ChatTraits& traits() const { return traits_; }
  // The token that ends an answer, where the template writes one. It joins the model's own eos.
  std::optional<int32_t> end_of_turn() const { return end_of_turn_; }
  // Else the text that ends it, such as "\n\nUser:"; "": none is known.
  const std::string& stop_text() const { return stop_text_; }
  // Values that a fresh sequence reads before its first rendering.
  const std::vector<int32_t>& begin() const { return begin_; }
  // Of the template's file, or "rwkv7-g1".
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
