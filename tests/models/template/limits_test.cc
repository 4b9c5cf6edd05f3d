// Every bound of limits.h: the largest input is render_status, a larger one names the limit.
#include "models/template/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/template/chat_template.h"

namespace runnel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Status render_status(const std::string& source, const Conversation& conversation = {},
                     WorkLimit limit = WorkLimit()) {
  const auto made = ChatTemplate::parse(source, "t");
  return made.ok() ? made->render(conversation, limit).status() : made.status();
}

std::string times(int64_t count, const std::string& text) {
  std::string all;
  for (int64_t i = 0; i < count; ++i) all += text;
  return all;
}

void expect_limit(const std::string& source, int64_t limit) {
  const Status status = render_status(source);
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("t"), HasSubstr(std::to_string(limit))));
}

TEST(TemplateLimits, Source) {
  const auto most = static_cast<size_t>(jinja::kMaxSourceBytes);
  EXPECT_TRUE(render_status(std::string(most, 'x')).ok());
  expect_limit(std::string(most + 1, 'x'), jinja::kMaxSourceBytes);
}

TEST(TemplateLimits, Nodes) {
  EXPECT_TRUE(render_status("{{ [" + times(10'000, "1,") + "]|length }}").ok());
  expect_limit("{{ [" + times(60'000, "1,") + "]|length }}", jinja::kMaxNodes);
}

TEST(TemplateLimits, Nesting) {
  const auto blocks = [](int count) {
    return times(count, "{% if 1 %}") + times(count, "{% endif %}");
  };
  EXPECT_TRUE(render_status(blocks(jinja::kMaxNesting / 2)).ok());
  expect_limit(blocks(jinja::kMaxNesting + 1), jinja::kMaxNesting);
  const auto lists = [](int count) {
    return "{{ " + times(count, "[") + times(count, "]") + " }}";
  };
  EXPECT_TRUE(render_status(lists(jinja::kMaxNesting / 4)).ok());
  expect_limit(lists(jinja::kMaxNesting + 1), jinja::kMaxNesting);
}

TEST(TemplateLimits, Evaluations) {
  const std::string loop = "{% for i in range(1000) %}{% for j in range(";
  EXPECT_TRUE(render_status(loop + "100) %}{% endfor %}{% endfor %}").ok());
  // On a slow machine, the limit of time is reached before the limit of evaluations.
  const Status endless = render_status(loop + "100000) %}{{ j }}{% endfor %}{% endfor %}");
  EXPECT_EQ(endless.code(), Code::kResourceExhausted) << endless.message();
  // A search through many bytes counts as many evaluations, although it takes little time.
  expect_limit(
      "{% set x = 'x' * 100000 * 10 %}{% for i in range(1000) %}{% if 'y' in x %}{% endif %}"
      "{% endfor %}",
      jinja::kMaxEvaluations);
}

TEST(TemplateLimits, Time) {
  const Status late =
      render_status("{% for i in range(9999) %}{{ i }}{% endfor %}", {}, WorkLimit(Duration(0)));
  EXPECT_EQ(late.code(), Code::kResourceExhausted);
  EXPECT_THAT(late.message(), HasSubstr("takes longer than it may"));
}

TEST(TemplateLimits, MacroDepth) {
  const auto macro = [](int depth) {
    return "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(" +
           std::to_string(depth) + ") }}";
  };
  EXPECT_TRUE(render_status(macro(jinja::kMaxMacroDepth - 1)).ok());
  expect_limit(macro(jinja::kMaxMacroDepth + 1), jinja::kMaxMacroDepth);
}

TEST(TemplateLimits, Arguments) {
  const auto call = [](int64_t items) {
    return "{% set x = namespace() %}{{ 'x'.join(*[[]], *range(" + std::to_string(items) + ")) }}";
  };
  EXPECT_THAT(render_status(call(jinja::kMaxArguments - 1)).message(),
              HasSubstr("too many arguments"));
  expect_limit(call(jinja::kMaxArguments), jinja::kMaxArguments);
}

TEST(TemplateLimits, DepthOfValues) {
  const auto nested = [](int depth) {
    return "{% set n = namespace(x=[]) %}{% for i in range(" + std::to_string(depth) +
           ") %}{% set n.x = [n.x] %}{% endfor %}";
  };
  EXPECT_TRUE(render_status(nested(jinja::kMaxValueDepth - 2)).ok());
  expect_limit(nested(jinja::kMaxValueDepth + 1), jinja::kMaxValueDepth);
}

// A method keeps its object, so a list of methods of lists is as deep as a list of lists. Without a
// limit, its destruction would exhaust the stack.
TEST(TemplateLimits, DepthOfMethods) {
  const auto nested = [](const std::string& first, const std::string& next) {
    return "{% set n = namespace(x=" + first + ") %}{% for i in range(" +
           std::to_string(jinja::kMaxValueDepth) + ") %}{% set n.x = " + next + " %}{% endfor %}";
  };
  expect_limit(nested("[]", "[n.x.index]"), jinja::kMaxValueDepth);
  expect_limit(nested("{}", "{'a': n.x.get}"), jinja::kMaxValueDepth);
  expect_limit(nested("{}", "{n.x.get: 'a'}"), jinja::kMaxValueDepth);
  EXPECT_EQ(render_status("{% set n = [[].index, 'a'.upper] %}{{ n[1]() }}").message(), "");
}

TEST(TemplateLimits, Range) {
  EXPECT_TRUE(render_status("{{ range(100000)|length }}").ok());
  expect_limit("{{ range(100001)|length }}", jinja::kMaxRange);
}

TEST(TemplateLimits, Output) {
  const auto blocks = [](int64_t count) {  // of 64 KiB
    return "{% set x = 'x' * 65536 %}{% for i in range(" + std::to_string(count) +
           ") %}{{ x }}{% endfor %}";
  };
  const Status small = render_status(blocks(100)), large = render_status(blocks(257));
  EXPECT_TRUE(small.ok()) << small.message();
  EXPECT_EQ(large.code(), Code::kResourceExhausted) << large.message();
}

TEST(TemplateLimits, BytesOfValues) {
  const auto text = [](const char* megabytes) {
    return std::string("{% set x = 'x' * 100000 * 10 %}{% set y = x * ") + megabytes + " %}";
  };
  EXPECT_EQ(render_status(text("4")).message(), "");
  const Status large = render_status(text("17"));
  EXPECT_EQ(large.code(), Code::kResourceExhausted);
  EXPECT_THAT(large.message(), HasSubstr("the values of the template take more than"));
  Conversation long_one;  // each of its bytes allows 16 more
  long_one.messages = OrderedJson::array({{{"content", std::string(4 << 20, 'x')}}});
  EXPECT_EQ(render_status(text("17"), long_one).message(), "");
}

TEST(TemplateLimits, BytesOfMethods) {
  const auto methods = [](int64_t count) {
    return "{{ (['a'] * " + std::to_string(count) + ")|map(attribute='upper')|list|length }}";
  };
  EXPECT_EQ(render_status(methods(50'000)).message(), "");
  const Status large = render_status(methods(100'000));
  EXPECT_EQ(large.code(), Code::kResourceExhausted);
  EXPECT_THAT(large.message(), HasSubstr("the values of the template take more than"));
}

// Texts and lists that are made on the way count, too, before they become large.
TEST(TemplateLimits, BytesOfWhatIsMadeOnTheWay) {
  const std::string list =
      "{% set a = [-9223372036854775807] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 "
      "%}";
  for (const std::string& source : {list + "{{ c }}", list + "{{ c|string|length }}",
                                    std::string("{{ ('\\n' * 1000 * 4000)|indent|length }}")}) {
    const Status large = render_status(source);
    EXPECT_EQ(large.code(), Code::kResourceExhausted) << source;
    EXPECT_THAT(large.message(), HasSubstr("the values of the template take more than")) << source;
  }
  EXPECT_EQ(render_status("{{ ('\\n' * 1000 * 10)|indent|length }}").message(), "");
  EXPECT_EQ(render_status("{{ ('<' * 1000 * 1000)|e|length }}").message(), "");
  EXPECT_EQ(render_status("{{ ('\\x01' * 1000 * 1000)|tojson|length }}").message(), "");
}

// A template chooses the separators between the items of a list.
TEST(TemplateLimits, SeparatorsOfJson) {
  const auto written = [](int items) {
    return "{% set x = 'x' * 100000 * 10 %}{{ (range(" + std::to_string(items) +
           ")|list)|tojson(separators=(x, ':')) }}";
  };
  EXPECT_EQ(render_status(written(3)).message(), "");
  const Status large = render_status(written(100'000));
  EXPECT_EQ(large.code(), Code::kResourceExhausted) << large.message();
}

// Each message costs as much as all messages before it.
TEST(TemplateLimits, QuadraticTemplatesEnd) {
  Conversation conversation;
  for (int i = 0; i < 10'000; ++i) {
    conversation.messages.push_back({{"role", "user"}, {"content", "x"}});
  }
  const Duration before = WorkLimit::processor_time();
  const Status status = render_status(
      "{% for m in messages %}{% for n in messages[:loop.index] %}{{ n.content }}{% endfor %}"
      "{% endfor %}",
      conversation);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_LT(WorkLimit::processor_time() - before, std::chrono::seconds(20));
  EXPECT_TRUE(
      render_status("{% for m in messages %}{{ m.content }}{% endfor %}", conversation).ok());
}

// The schema of the tool has 1 MiB.
TEST(TemplateLimits, ALargeToolIsRendered) {
  Conversation conversation;
  OrderedJson properties = OrderedJson::object();
  for (int i = 0; i < 10'000; ++i) {
    properties["p" + std::to_string(i)] = {{"type", "string"},
                                           {"description", std::string(60, 'd')}};
  }
  conversation.tools = OrderedJson::array({{{"parameters", properties}}});
  EXPECT_EQ(render_status("{{ tools|tojson }}", conversation).message(), "");
}

}  // namespace
}  // namespace runnel
