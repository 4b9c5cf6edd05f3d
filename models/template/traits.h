// The traits of a template that a server needs. They are found by rendering artificial
// conversations; the source of the template is not examined.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "models/template/template_set.h"

namespace runnel {

// Placeholders for the user's text in ChatTraits::after_answer, and for the answer before it.
inline constexpr std::string_view kProbeUser = "zqUSERqz", kProbeAnswer = "zqMARKqz";
// The tool in the artificial conversations, its argument, and the argument's value.
inline constexpr std::string_view kProbeTool = "zqF", kProbeKey = "zqK", kProbeValue = "zqV";

// R(m, p) is the rendering of messages m, with the generation prompt if p is true. h is the
// conversation system (if the template accepts it), user, assistant, user.
struct ChatTraits {
  bool system = false;     // a system message appears in the text
  bool developer = false;  // the template treats developer messages differently from other roles
  // The text that add_generation_prompt adds after h. None if it changes more than the end.
  std::optional<std::string> generation_prompt = {};
  bool thinking_open = false;  // R(h, true) ends inside <think>
  // The text between an answer and the next answer, with a user's message.
  MarkedText after_answer = {};
  // Whether after_answer does not depend on the messages before the answer.
  bool follows_any_answer = false;
  // Whether R(h + answer + user, true) begins with R(h, false), and with R(h, true) + answer.
  bool history_begins_next = false;
  bool prompt_and_answer_begin_next = false;
  bool takes_parts = false;  // content that is a list of parts is rendered as the parts' text
  bool tools_change_prompt = false;  // tools have an effect
  bool thinking_switch = false;      // enable_thinking has an effect
  // The text for an assistant's call of kProbeTool without content, and with empty content. Up to
  // 60 bytes before the call are included. "": the call is not written. None: the template fails.
  std::optional<std::string> call_without_content = {};
  std::optional<std::string> call_with_empty_content = {};

  // Whether an assistant's message that calls tools needs content, which may be "".
  bool call_needs_content() const {
    return call_without_content.value_or("").empty() &&
           !call_with_empty_content.value_or("").empty();
  }
};

// Finds the traits. INVALID_ARGUMENT with the reason if the template refuses h. RESOURCE_EXHAUSTED
// if a limit of limits.h is exceeded. Renderings that begin after 4 s of processor time fail.
Result<ChatTraits> probe(const TemplateSet& templates);

}  // namespace runnel
