#include "models/template/chat_template.h"

#include <gtest/gtest.h>

#include "base/ordered_json.h"

namespace runnel {
namespace {

using Runs = std::vector<TextRun>;

Conversation conversation_of(const std::string& messages, const std::string& variables = "{}") {
  const JsonLimits limits{1 << 20, 100'000, 32};
  Conversation conversation;
  conversation.messages = parse_ordered_json(messages, "messages", limits).value();
  conversation.variables = parse_ordered_json(variables, "variables", limits).value();
  conversation.now.tm_sec = 9;
  conversation.now.tm_min = 8;
  conversation.now.tm_hour = 7;
  conversation.now.tm_mday = 5;
  conversation.now.tm_mon = 2;
  conversation.now.tm_year = 126;
  conversation.now.tm_wday = 4;
  return conversation;
}

Result<MarkedText> marked(const std::string& source, const Conversation& conversation) {
  const auto made = ChatTemplate::parse(source, "t");
  if (!made.ok()) return made.status();
  return made->render(conversation);
}

// The text, or "CODE: message".
std::string rendered(const std::string& source, const std::string& variables = "{}",
                     const std::string& messages = "[]") {
  const auto result = marked(source, conversation_of(messages, variables));
  return result.ok() ? result->bytes : result.status().to_string();
}

struct Case {
  const char *source, *text;
};

TEST(ChatTemplate, ControlsWhiteSpaceAsTransformersDoes) {
  for (const auto& [source, text] : std::vector<Case>{
           {"a\n", "a"},
           {"a\n\n", "a\n"},
           {"a\r\nb\rc", "a\nb\nc"},
           {"{% if 1 %}\na\n{% endif %}\nb", "a\nb"},
           {"x\n  {% if 1 %}y{% endif %}", "x\ny"},
           {"x {% if 1 %}y{% endif %}", "x y"},
           {"  {{ 1 }}", "  1"},
           {"a \n {{- 1 -}} \n b", "a1b"},
           {"a\u2003{%- if 1 %}b{% endif %}", "ab"},
           {"  {%+ if 1 %}a{% endif +%}\nb", "  a\nb"},
           {"a{# no #}\nb", "ab"},
           {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
           {"{{ {'a': {'b': 1}}.a.b }}", "1"},
       }) {
    EXPECT_EQ(rendered(source), text) << source;
  }
}

TEST(ChatTemplate, CountsAndPrintsAsPythonDoes) {
  for (const auto& [source, text] : std::vector<Case>{
           {"{{ [1000.0, 1e-07, 1e22, 1e16, 0.1, true, none]|join(' ') }}",
            "1000.0 1e-07 1e+22 1e+16 0.1 True None"},
           {"{{ 7 // -2 }} {{ 7 % -2 }} {{ -7 // 2 }} {{ 1 / 2 }} {{ true + 1 }}",
            "-4 -1 -4 0.5 2"},
           {"{{ 'gr\u00fc\u00df'|length }} {{ 'gr\u00fc\u00df'[-1] }} {{ 'abc'[::-1] }}",
            "4 \u00df cba"},
           {"{{ 'abcde'[1:-1] }} {{ [1, 2, 3][::-1][0] }} {{ 'ab'[5:] }}|", "bcd 3 |"},
           {"[{{ '\\u001c\\u3000 a\\u200b\\u0085'.strip() }}]", "[a\u200b]"},
           {"{{ ['a', \"it's\", '\\n', {'b': (1,)}] }}", "['a', \"it's\", '\\n', {'b': (1,)}]"},
           {"{{ 'a b  c'.split() }} {{ 'a,b,c'.split(',', 1) }}", "['a', 'b', 'c'] ['a', 'b,c']"},
           {"{{ -1|abs }} {{ 'x' ~ 1 ~ none }} {{ 2 * 'ab' }}", "1 x1None abab"},
           {"{{ '3.7'|int }} {{ 'x'|int(5) }}", "3 5"},
           {"{{ 'they\\'re tool_call (a-b 2c'|title }} {{ 'they\\'re tool_call 2c'.title() }}",
            "They're Tool_call (A-B 2c They'Re Tool_Call 2C"},
           {"{{ 'stra\u00dfe'|upper }} {{ '\u00dfa'.title() }} {{ '\u00dfa'|capitalize }}",
            "STRASSE Ssa Ssa"},
           {"{{ '\x7f\u00e9'|tojson(ensure_ascii=true) }}", "\"\\u007f\\u00e9\""},
           {"{{ '0x10'|int }} {{ ' 12 '|float }} {{ '0x10'|float(1) }}", "0 12.0 1"},
           {"{{ '7'|int(0, 1) }} {{ '7'|int(0, -1) }} {{ '7'|int(base=99) }} {{ ''|int(4, 1) }}",
            "7 7 7 4"},
           {"{{ 'ff'|int(base=16) }} {{ '7'|int(base=0) }} {{ 'z'|int(base=36) }}", "255 7 35"},
           {"{{ 'a\\nb\\n\\nc'|indent(2) }}", "a\n  b\n\n  c"},
           {"{{ strftime_now('%d %B %Y') }}", "05 March 2026"},
       }) {
    EXPECT_EQ(rendered(source), text) << source;
  }
}

TEST(ChatTemplate, UndefinedIsEmptyUntilItIsUsed) {
  for (const auto& [source, text] : std::vector<Case>{
           {"[{{ x }}{{ x ~ 'a' }}{% for y in x %}b{% endfor %}{{ 1 in x }}{{ x|length }}]",
            "[aFalse0]"},
           {"{{ x is defined }} {{ x is sequence }} {{ x == y }} {{ x|default('d') }}",
            "False True True d"},
           {"{{ x.y }}", "INVALID_ARGUMENT: t, line 1: 'x' is undefined"},
           {"\n{{ x + 1 }}", "INVALID_ARGUMENT: t, line 2: 'x' is undefined"},
           {"{{ x|tojson }}",
            "INVALID_ARGUMENT: t, line 1: Object of type Undefined is not JSON serializable"},
           {"{{ none.y is defined }} {{ ('a' if false) is defined }}", "False False"},
       }) {
    EXPECT_EQ(rendered(source), text) << source;
  }
}

TEST(ChatTemplate, DistinguishesMembersFromMethodsOfTheSameName) {
  const std::string variables = R"({"a": {"z": 1, "items": "key", "b": [1.0, "\u00e9</x>"]}})";
  EXPECT_EQ(rendered("{{ a['items'] }} {{ a.z }} {% for k, v in a.items() %}{{ k }},{% endfor %}",
                     variables),
            "key 1 z,items,b,");
  EXPECT_EQ(rendered("{{ a|tojson }}", variables),
            "{\"z\": 1, \"items\": \"key\", \"b\": [1.0, \"\u00e9</x>\"]}");
  EXPECT_EQ(rendered("{{ a.b|tojson(indent=1, ensure_ascii=true) }}", variables),
            "[\n 1.0,\n \"\\u00e9</x>\"\n]");
  EXPECT_EQ(rendered("{{ a.get('q') }} {{ a.get('q', 2) }} {{ 'z' in a }}", variables),
            "None 2 True");
  EXPECT_EQ(rendered("{{ a.b.append(1) }}", variables),
            "INVALID_ARGUMENT: t, line 1: a template may not change a list: 'append' is refused");
}

TEST(ChatTemplate, ScopesEndWithTheirBlocks) {
  for (const auto& [source, text] : std::vector<Case>{
           {"{% set x = 0 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
            "120"},
           {"{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}"
            "{{ n.x }}",
            "3"},
           {"{% if 1 %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
           {"{% macro m(a, b=2) %}{{ a }}{{ b }}{{ g }}{% endmacro %}{% set g = 3 %}"
            "{{ m(1) }} {{ m(b=5, a=4) }}",
            "123 453"},
           {"{% macro m() %}<{{ caller('x') }}>{% endmacro %}"
            "{% call(t) m() %}{{ t }}y{% endcall %}",
            "<xy>"},
           {"{% set x | upper %}ab{% endset %}{{ x }}{% filter trim %} c {% endfilter %}", "ABc"},
           {"{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "1"},
           {"{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}", "12"},
       }) {
    EXPECT_EQ(rendered(source), text) << source;
  }
}

TEST(ChatTemplate, LoopsHaveTheirVariables) {
  for (const auto& [source, text] : std::vector<Case>{
           {"{% for x in 'abc' %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
            "{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
            "0TrueFalseb;1FalseFalseac;2FalseTrueb;"},
           {"{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index }}{{ x }}{% endfor %}", "1224"},
           {"{% for x in [] %}{% else %}none{% endfor %}", "none"},
           {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}"
            "{% if x > 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
            "02"},
           {"{% for x in [1, 2, 3] %}{% set y %}{% if x == 2 %}{% break %}{% endif %}a{% endset %}"
            "{{ x }}{% endfor %}",
            "1"},
           {"{% for x in [1, 2, 3] %}{% filter upper %}{% if x == 2 %}{% continue %}{% endif %}a"
            "{% endfilter %}{{ x }}{% endfor %}",
            "A1A3"},
           {"{{ 'yes' if [1]|selectattr('x')|list else 'no' }} "
            "{{ 'yes' if [1]|selectattr('x') else 'no' }}",
            "no yes"},
           {"{% for x in none %}{% endfor %}",
            "INVALID_ARGUMENT: t, line 1: 'NoneType' object is not iterable"},
       }) {
    EXPECT_EQ(rendered(source), text) << source;
  }
}

TEST(ChatTemplate, SaysWhatIsWrongAndWhere) {
  for (const auto& [source, text] : std::vector<Case>{
           {"{{ raise_exception('Roles: ' ~ 1) }}", "INVALID_ARGUMENT: Roles: 1"},
           {"\n{% if %}",
            "INVALID_ARGUMENT: t, line 2: expected an expression, found the end of the tag"},
           {"{% include 'x' %}", "INVALID_ARGUMENT: t, line 1: the tag 'include' is not supported"},
           {"{{ 1|nope }}", "INVALID_ARGUMENT: t, line 1: there is no filter 'nope'"},
           {"{{ 'a' + 1 }}",
            "INVALID_ARGUMENT: t, line 1: unsupported operand types for +: 'str' and 'int'"},
           {"{% for x in y %}", "INVALID_ARGUMENT: t, line 1: expected endfor"},
           {"{{ 1", "INVALID_ARGUMENT: t, line 1: {{ does not end"},
           {"\xff", "INVALID_ARGUMENT: t: the template is not UTF-8"},
       }) {
    EXPECT_EQ(rendered(source), text) << source;
  }
}

TEST(ChatTemplate, RecordsTheWriterOfEachByte) {
  const Conversation conversation = conversation_of(
      R"([{"role": "user", "content": " <|x|> "}, {"role": "assistant", "content": "ok"}])");
  const auto text = marked(
      "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|trim|upper }}{% endfor %}"
      "{{ messages[0].content|tojson }}",
      conversation);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes, "<|user|><|X|><|assistant|>OK\" <|x|> \"");
  const Runs runs = {{8, Writer::kTemplate}, {13, Writer::kInput},    {26, Writer::kTemplate},
                     {28, Writer::kAnswer},  {29, Writer::kTemplate}, {36, Writer::kInput},
                     {37, Writer::kTemplate}};
  EXPECT_EQ(text->runs, runs);
}

TEST(ChatTemplate, AnUnknownRoleIsInput) {
  const auto text = marked("{{ messages[0].role }}", conversation_of(R"([{"role": "<|x|>"}])"));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->runs, (Runs{{5, Writer::kInput}}));
}

TEST(ChatTemplate, NullMembersAreLeftOutAndThinkingHasTwoNames) {
  EXPECT_EQ(rendered("{{ messages[0] }}", "{}", R"([{"content": null, "reasoning": "r"}])"),
            "{'reasoning': 'r', 'reasoning_content': 'r', 'thinking': 'r'}");
}

// Without a bound, each would run forever or take all memory.
TEST(ChatTemplate, HostileTemplatesAreStopped) {
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')') + " }}";
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  std::string sum = "{{ 1";
  for (int i = 0; i < 20000; ++i) sum += "+1";
  EXPECT_EQ(rendered(sum + " }}"), "20001");
  for (const std::string& source : std::vector<std::string>{
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}"
           "{% endfor %}",
           "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}"
           "{% endfor %}",
           "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}"
           "{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{{ range(100001) }}",
           "{{ 'abcdefgh' * 99999999 }}",
           "{{ [1] * 99999999 }}",
           "{% set a = 'x' * 9999999 %}{{ range(99999)|map('default', a)|join(a) }}",
           "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
           "{{ " + deep,
           "{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}",
           "{{ " + std::string(5000, '-') + "1 }}",
           blocks,
           std::string(300000, 'x'),
       }) {
    const std::string text = rendered(source);
    EXPECT_TRUE(text.starts_with("RESOURCE_EXHAUSTED: t")) << source.substr(0, 90) << "\n"
                                                           << text.substr(0, 200);
  }
}

// The message may contain a client's text, with the marks of the fields that it came from.
TEST(ChatTemplate, AMessageThatIsRaisedIsBounded) {
  const std::string raises = "{{ raise_exception(messages[0].content) }}";
  const auto raised = [&](const std::string& content) {
    return rendered(raises, "{}", R"([{"role": "user", "content": ")" + content + R"("}])");
  };
  EXPECT_EQ(raised("a\\u001eb\\u001fc"), "INVALID_ARGUMENT: abc");
  std::string umlauts;
  for (int i = 0; i < 600; ++i) umlauts += "\u00fc";
  EXPECT_EQ(raised("x" + umlauts), "INVALID_ARGUMENT: x" + umlauts.substr(0, 998));
}

TEST(ChatTemplate, NamespacesThatHoldThemselvesAreFreed) {
  EXPECT_EQ(rendered("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}"
                     "{% for i in range(50000) %}{% set n.x = namespace(x=n.x) %}{% endfor %}."),
            ".");
}

}  // namespace
}  // namespace runnel
