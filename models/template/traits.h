// What a server has to know about a template, found out by rendering made-up conversations. Nothing
// is recognized by its source.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "models/template/template_set.h"

namespace runnel {

// Stand for the user's text in ChatTraits::after_answer, and for the answer before it.
inline constexpr std::string_view kProbeUser = "zqUSERqz", kProbeAnswer = "zqMARKqz";
// The tool that probes call, and its argument with its value.
inline constexpr std::string_view kProbeTool = "zqF", kProbeKey = "zqK", kProbeValue = "zqV";

// R(m, p) is the rendering of messages m, where p says whether with the generation prompt. h is
// system (where the template takes it), user, assistant, user.
struct ChatTraits {
  bool system = false;     // a system message reaches the text
  bool developer = false;  // the template knows a developer's message from one of any other role
  // What add_generation_prompt adds after h; none where it changes more than the end.
  std::optional<std::string> generation_prompt = {};
  bool thinking_open = false;    // R(h, true) ends inside <think>
  MarkedText after_answer = {};  // the text after an answer when a user speaks next
  // The messages before the answer do not change that text.
  bool follows_any_answer = false;
  // R(h, false), and R(h, true) + answer, begin R(h + answer + user, true).
  bool history_begins_next = false;
  bool prompt_and_answer_begin_next = false;
  bool takes_parts = false;          // content that is a list of parts is rendered as its text
  bool tools_change_prompt = false;  // tools have an effect
  bool thinking_switch = false;      // enable_thinking has an effect
  // How a call of kProbeTool is written by an assistant without content, and with empty content;
  // up to 60 bytes before it are included. "": not at all; none: the template fails.
  std::optional<std::string> call_without_content = {};
  std::optional<std::string> call_with_empty_content = {};

  // A message of the assistant that calls tools needs a content, which may be "".
  bool call_needs_content() const {
    return call_without_content.value_or("").empty() &&
           !call_with_empty_content.value_or("").empty();
  }
};

// Renders the conversations. INVALID_ARGUMENT with the reason when the template refuses h;
// RESOURCE_EXHAUSTED beyond a limit of limits.h, or past `until`.
Result<ChatTraits> probe(const TemplateSet& templates, TimePoint until = TimePoint::max());

}  // namespace runnel
