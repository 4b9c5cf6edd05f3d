#include "tests/fuzz/answer_properties.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "base/check.h"
#include "base/ordered_json.h"
#include "server/openai/chat_answer.h"

namespace runnel {
namespace {

using Kind = ChatEvent::Kind;

constexpr std::array kForms = {ToolCallForm::kTagged,    ToolCallForm::kXml,
                               ToolCallForm::kPython,    ToolCallForm::kUpperList,
                               ToolCallForm::kLowerList, ToolCallForm::kFenced};
constexpr std::array<std::string_view, 4> kPrompts = {"", "<think>\n", "<think", "<think></think"};

const OrderedJson& tools() {
  static const OrderedJson kTools =
      parse_ordered_json(
          R"([{"type":"function","function":{"name":"f","parameters":{"properties":{
          "n":{"type":"integer"},"s":{"type":"string"}}}}}])",
          "tools", {1000, 100, 10})
          .value();
  return kTools;
}

// The events of `text`, added in pieces of at most `most` bytes, joined by kind.
std::vector<ChatEvent> answer_events(const ChatAnswer::Options& options, std::string_view prompt,
                                     std::string_view text, size_t most) {
  ChatAnswer answer(options, prompt);
  std::mt19937_64 random(text.size());
  std::vector<ChatEvent> all;
  const auto take = [&] {
    for (ChatEvent& event : answer.take()) {
      const bool is_call = event.kind == Kind::kCall;
      check(is_call || !event.text.empty(), "an event has text");
      if (!is_call && !all.empty() && all.back().kind == event.kind) {
        all.back().text += event.text;
      } else {
        all.push_back(std::move(event));
      }
    }
  };
  while (!text.empty()) {
    const size_t length = std::min<size_t>(1 + random() % most, text.size());
    answer.add(text.substr(0, length));
    text.remove_prefix(length);
    take();
  }
  answer.finish();
  take();
  return all;
}

// Finds an event's text in the rest of the answer, and moves past it.
void take_text(std::string_view text, std::string_view& rest) {
  const size_t at = rest.find(text);
  check(at != std::string_view::npos, "text goes out once and in order");
  rest.remove_prefix(at + text.size());
}

}  // namespace

bool check_chat_answer(std::string_view input) {
  if (input.empty()) return false;
  size_t choice = static_cast<uint8_t>(input[0]);
  const std::string_view text = input.substr(1);
  ChatAnswer::Options options{.tools = &tools()};
  if (const size_t form = choice % (kForms.size() + 1); form > 0) options.form = kForms[form - 1];
  choice /= kForms.size() + 1;
  const std::string_view prompt = kPrompts[choice % kPrompts.size()];
  options.one_call = choice / kPrompts.size() % 2 == 1;

  const std::vector<ChatEvent> whole = answer_events(options, prompt, text, input.size());
  for (const size_t most : {1, 7, 100}) {
    check(answer_events(options, prompt, text, most) == whole, "cuts change nothing");
  }
  std::string_view rest = text;
  int calls = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    const ChatEvent& event = whole[i];
    check(event.kind != Kind::kThinking || i == 0, "thinking comes first");
    if (event.kind != Kind::kCall) {
      take_text(event.text, rest);
      continue;
    }
    ++calls;
    check(options.form.has_value(), "a call has a form");
    check(!event.call.name.empty(), "a call has a name");
    const auto arguments =
        parse_ordered_json(event.call.arguments, "a call", {1 << 20, 1 << 20, 40});
    check(arguments.ok() && arguments->is_object(), "arguments are an object");
  }
  check(calls <= 1 || !options.one_call, "one call ends the answer");
  return calls > 0;
}

std::vector<std::string> answer_seeds() {
  const std::string json = R"({"name": "f", "arguments": {"n": 1, "s": "a\"b"}})";
  const std::string list = "[" + json + ", {\"name\": \"g\"}]";
  const std::string xml = "<function=f>\n<parameter=n>\n3\n</parameter>\n</function>";
  return {
      "\x01<think>\nHm.\n</think>\n\nLook.\n<tool_call>\n" + json + "\n</tool_call>",
      "\x02<tool_call>\n" + xml + "\n</tool_call>",
      "\x02" + xml,
      "\x03<|tool_call_start|>[f(n=-1.5e3, s='a\\'b', l=[None, {'k': True}])]<|tool_call_end|> So.",
      "\x04<TOOLCALL>" + list + "</TOOLCALL>",
      "\x05<tool_calls>" + list + "</tool_calls>",
      "\x06```json\n" + json + "\n```",
      "\x08Hm.</think> <tool_call>" + json + "</tool_call>",
      "\x1d<tool_call>" + json + "</tool_call> <tool_call>" + json + "</tool_call>",
  };
}

std::span<const std::string_view> answer_words() {
  static constexpr std::string_view kWords[] = {"<think>",
                                                "</think>",
                                                "<tool_call>",
                                                "</tool_call>",
                                                "<function=f>",
                                                "</function>",
                                                "<parameter=n>",
                                                "</parameter>",
                                                "<|tool_call_start|>",
                                                "<|tool_call_end|>",
                                                "<TOOLCALL>",
                                                "</TOOLCALL>",
                                                "<tool_calls>",
                                                "</tool_calls>",
                                                "```json",
                                                "```",
                                                "\"name\"",
                                                "\"arguments\"",
                                                "[f(a='b')]",
                                                "\\u00e9",
                                                "\\",
                                                "'",
                                                "\"",
                                                "        ",
                                                "[[[[[[[[[",
                                                "{\"a\":"};
  return kWords;
}

}  // namespace runnel
