#include "tests/fuzz/template_properties.h"

#include <chrono>

#include "base/check.h"
#include "base/ordered_json.h"
#include "base/utf8.h"
#include "models/template/chat_template.h"

namespace runnel {
namespace {

constexpr std::chrono::milliseconds kRendering{100};

Conversation small_conversation() {
  constexpr const char* kMessages =
      R"([{"role": "system", "content": "Be kind."},
          {"role": "user", "content": " r\u00edo \ud83c\udf0a\n "},
          {"role": "assistant", "content": "<think>a</think>b", "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1.5, "y": [null, true]}}}]},
          {"role": "user", "content": [{"type": "text", "text": "part"}]}])";
  const JsonLimits limits{1 << 12, 1000, 16};
  Conversation conversation;
  conversation.messages = parse_ordered_json(kMessages, "messages", limits).value();
  conversation.tools = parse_ordered_json(R"([{"function": {"name": "f"}}])", "t", limits).value();
  conversation.tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  conversation.add_generation_prompt = true;
  conversation.now.tm_mday = 1;
  return conversation;
}

void check_fault(const Status& status) {
  check(status.code() == Code::kInvalidArgument || status.code() == Code::kResourceExhausted,
        "the code of a refusal");
}

void check_text(const MarkedText& text) {
  check(valid_utf8_prefix(text.bytes) == text.bytes.size(), "UTF-8");
  size_t end = 0;
  for (size_t i = 0; i < text.runs.size(); ++i) {
    check(text.runs[i].end > end, "runs are not empty");
    check(i == 0 || text.runs[i].writer != text.runs[i - 1].writer, "runs that touch differ");
    end = text.runs[i].end;
  }
  check(end == text.bytes.size(), "runs cover the text");
}

}  // namespace

bool check_template(std::string_view source) {
  static const Conversation kConversation = small_conversation();
  const auto made = ChatTemplate::parse(source, "t");
  if (!made.ok()) {
    check_fault(made.status());
    return false;
  }
  const auto text = made->render(kConversation, WorkLimit(kRendering));
  text.ok() ? check_text(*text) : check_fault(text.status());
  return true;
}

std::vector<std::string> template_seeds() {
  return {
      "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|string|trim }}"
      "{% if not loop.last %}{{ eos_token }}{% endif %}{% endfor %}",
      "{% set ns = namespace(n=0) %}{% for m in messages[1:] if m.content is string %}"
      "{% set ns.n = ns.n + 1 %}{{ m.content[::-1].split('a')[-1] }}{% else %}none{% endfor %}",
      "{% macro m(a, b=2) -%} {{ caller(a) ~ b }} {%- endmacro %}"
      "{% call(x) m(1, b='c') %}{{ x }}{% endcall %}{% filter upper %}a{% endfilter %}",
      "{{ tools|tojson(indent=2) }}{% for k, v in messages[2].tool_calls[0].function.arguments"
      ".items() %}{{ k }}={{ v|tojson }}{{ ', ' if not loop.last }}{% endfor %}",
      "{# c #}{% raw %}{{ }}{% endraw %}{% generation %}{{- 1 // 2 * 3 % 4 - 5 -}}{% endgeneration "
      "%}"
      "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|length }}",
      "{% set x %}{{ range(5)|join(',') }}{% endset %}{{ x.replace('1', 'é').title() }}"
      "{% for i in range(9) %}{% if i is odd %}{% continue %}{% elif i > 5 %}{% break %}{% endif %}"
      "{{ {'a': (i, none, true)} }}{% endfor %}{{ raise_exception('no') if x == '' }}",
  };
}

std::span<const std::string_view> template_words() {
  static constexpr std::string_view kWords[] = {"{{",
                                                "}}",
                                                "{%",
                                                "%}",
                                                "{%-",
                                                "-%}",
                                                "{#",
                                                "#}",
                                                "{{-",
                                                "-}}",
                                                "[0]",
                                                "[-1]",
                                                "[1:",
                                                "~",
                                                "+",
                                                "-",
                                                "*",
                                                "//",
                                                "==",
                                                "!=",
                                                "(",
                                                ")",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                ",",
                                                ":",
                                                "'",
                                                "\"",
                                                "\\",
                                                "\xff",
                                                "1e309",
                                                "|trim",
                                                "|list",
                                                "|join",
                                                "|tojson",
                                                "|length",
                                                "|sort",
                                                "|int",
                                                "loop",
                                                "ns.n",
                                                "none",
                                                "{% if x %}",
                                                "{% endif %}",
                                                "{% for x in messages %}",
                                                "{% endfor %}",
                                                "{% set x = ",
                                                "{% endset %}",
                                                "{% macro m(x) %}",
                                                "{% endmacro %}",
                                                "m(m)",
                                                "messages",
                                                "[::-1]",
                                                "|map(attribute='role')",
                                                ".items()",
                                                ".append(1)",
                                                " is defined",
                                                " in ",
                                                " and ",
                                                " if ",
                                                "range(99999)",
                                                "9223372036854775807"};
  return kWords;
}

}  // namespace runnel
