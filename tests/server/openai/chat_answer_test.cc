#include "server/openai/chat_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/json.h"
#include "base/ordered_json.h"
#include "tests/fuzz/answer_properties.h"
#include "tests/fuzz/walk.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Kind = ChatEvent::Kind;

ChatEvent thinking(const std::string& text) { return {.kind = Kind::kThinking, .text = text}; }
ChatEvent content(const std::string& text) { return {.kind = Kind::kContent, .text = text}; }
ChatEvent call(const std::string& name, const std::string& arguments) {
  return {.kind = Kind::kCall, .call = {name, arguments}};
}

const OrderedJson kTools =
    parse_ordered_json(
        R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
      "n":{"type":"integer"},"s":{"type":"string"},"l":{"type":["array","null"]}}}}}])",
        "tools", {1000, 100, 10})
        .value();

std::vector<ChatEvent> joined(const std::vector<ChatEvent>& events) {
  std::vector<ChatEvent> all;
  for (const ChatEvent& event : events) {
    if (event.kind != Kind::kCall && !all.empty() && all.back().kind == event.kind) {
      all.back().text += event.text;
    } else {
      all.push_back(event);
    }
  }
  return all;
}

struct Given {
  std::optional<ToolCallForm> form = {};
  std::string prompt = {};
  bool one_call = false;
  bool continues = false;
};

ChatAnswer answer_of(const Given& given) {
  return ChatAnswer({.form = given.form,
                     .tools = &kTools,
                     .one_call = given.one_call,
                     .continues = given.continues},
                    given.prompt);
}

std::vector<ChatEvent> read(const Given& given, const std::vector<std::string_view>& pieces) {
  ChatAnswer answer = answer_of(given);
  std::vector<ChatEvent> events;
  const auto take = [&] {
    for (ChatEvent& event : answer.take()) events.push_back(std::move(event));
  };
  for (const std::string_view piece : pieces) {
    answer.add(piece);
    take();
  }
  answer.finish();
  take();
  return joined(events);
}

// The events of `text`. They must be the same if it is cut in two anywhere, or into bytes.
std::vector<ChatEvent> events_of(const std::string& text, const Given& given = {}) {
  const std::vector<ChatEvent> whole = read(given, {text});
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view all = text;
    EXPECT_EQ(read(given, {all.substr(0, i), all.substr(i)}), whole) << "cut at " << i;
    bytes.push_back(all.substr(i, 1));
  }
  EXPECT_EQ(read(given, bytes), whole);
  return whole;
}

TEST(ChatAnswer, EventsSayWhereTheyEnd) {
  const std::string made = R"(<tool_call>{"name": "f"}</tool_call>)";
  ChatAnswer answer = answer_of({.form = ToolCallForm::kTagged});
  answer.add("Hm. " + made + "\nSo.");
  answer.finish();
  std::vector<int64_t> ends;
  for (const ChatEvent& event : answer.take()) ends.push_back(event.end);
  const int64_t called = 4 + std::ssize(made);
  EXPECT_THAT(ends, ElementsAre(3, called, called + 4));
}

TEST(ChatAnswer, ContentLosesItsLeadingSpace) {
  EXPECT_THAT(events_of(" Good day.\n"), ElementsAre(content("Good day.\n")));
  EXPECT_THAT(events_of(" \n "), IsEmpty());
  EXPECT_THAT(events_of(""), IsEmpty());
}

TEST(ChatAnswer, AContinuedTextKeepsItsLeadingSpace) {
  const Given given = {.form = ToolCallForm::kTagged, .continues = true};
  EXPECT_THAT(events_of(" flows.\n", given), ElementsAre(content(" flows.\n")));
  EXPECT_THAT(events_of(" \n", given), ElementsAre(content(" \n")));
  EXPECT_THAT(events_of("<think>a</think>", given), ElementsAre(content("<think>a</think>")));
  EXPECT_THAT(events_of(" so\n<tool_call>{\"name\":\"f\"}</tool_call>", given),
              ElementsAre(content(" so"), call("f", "{}")));
}

TEST(ChatAnswer, ThinkingIsApartFromContent) {
  const std::string text = "<think>\nLet me see.\n</think>\n\nIt is 4 < 5.";
  const auto expected = ElementsAre(thinking("Let me see."), content("It is 4 < 5."));
  EXPECT_THAT(events_of(text), expected);
  EXPECT_THAT(events_of("\n" + text), expected);
  EXPECT_THAT(events_of(text.substr(7), {.prompt = "<|assistant|>\n<think>\n"}), expected);
}

TEST(ChatAnswer, APromptMayEndWithinATag) {
  EXPECT_THAT(events_of(">Hm.</think>\nYes.", {.prompt = "Assistant: <think"}),
              ElementsAre(thinking("Hm."), content("Yes.")));
  EXPECT_THAT(events_of(">\nYes.", {.prompt = "Assistant: <think>\n</think"}),
              ElementsAre(content("Yes.")));
  EXPECT_THAT(events_of(" yes", {.prompt = "Assistant: <think"}), ElementsAre(content("yes")));
  EXPECT_THAT(events_of(" hm", {.prompt = "Assistant: <think>\n</think"}),
              ElementsAre(thinking("hm")));
  EXPECT_THAT(events_of("", {.prompt = "Assistant: <think"}), IsEmpty());
}

TEST(ChatAnswer, AnAnswerMayEndWithinItsThinking) {
  EXPECT_THAT(events_of("Let me </thi", {.prompt = "<think>"}),
              ElementsAre(thinking("Let me </thi")));
  EXPECT_THAT(events_of("<thin"), ElementsAre(content("<thin")));
}

TEST(ChatAnswer, TagsWithinContentAreContent) {
  const std::string text = "Write <think> and </think> and <tool_call>{}</tool_call>.";
  EXPECT_THAT(events_of(text), ElementsAre(content(text)));
  EXPECT_THAT(events_of("Done <think>.", {.prompt = "<think>\n\n</think>\n\n"}),
              ElementsAre(content("Done <think>.")));
}

TEST(ChatAnswer, ThinkingBytesCountTheTags) {
  ChatAnswer answer = answer_of({});
  EXPECT_TRUE(answer.is_thinking());
  answer.add("<think>abc</think>");
  EXPECT_FALSE(answer.is_thinking());
  answer.add("def");
  EXPECT_EQ(answer.thinking_bytes(), 18);
  ChatAnswer other = answer_of({});
  other.add("def");
  EXPECT_FALSE(other.is_thinking());
  EXPECT_EQ(other.thinking_bytes(), 0);
  ChatAnswer begun = answer_of({.prompt = "<think"});
  begun.add(">a");
  begun.finish();
  EXPECT_EQ(begun.thinking_bytes(), 2);
}

TEST(ChatAnswer, TaggedJsonIsACall) {
  const Given given = {.form = ToolCallForm::kTagged};
  const std::string one =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": [true]}}\n</tool_call>";
  const auto made = call("f", R"({"z":1,"a":[true]})");
  EXPECT_THAT(events_of(one, given), ElementsAre(made));
  EXPECT_THAT(events_of("Let me look.\n" + one + "\n" + one + "\n", given),
              ElementsAre(content("Let me look."), made, made));
  EXPECT_THAT(events_of("<think>\nf?\n</think>\n\n" + one, given),
              ElementsAre(thinking("f?"), made));
  // A closing tag inside a string does not end the call, and the last closing tag may be missing.
  EXPECT_THAT(events_of(R"(<tool_call>{"name":"f","arguments":{"s":"\"</tool_call>"}})", given),
              ElementsAre(call("f", R"({"s":"\"</tool_call>"})")));
  EXPECT_THAT(events_of(R"(<tool_call>{"name":"f","arguments":"{\"n\":1}"}</tool_call>)", given),
              ElementsAre(call("f", R"({"n":1})")));
  EXPECT_THAT(events_of(R"(<tool_call>{"name":"f"}</tool_call>)", given),
              ElementsAre(call("f", "{}")));
}

TEST(ChatAnswer, ACallThatIsNotWellFormedStaysContent) {
  const Given given = {.form = ToolCallForm::kTagged};
  for (const char* const text :
       {"a <tool_call>{</tool_call> b", "<tool_call>[]</tool_call>", "<tool_call>",
        "<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":[]}"}) {
    EXPECT_THAT(events_of(text, given), ElementsAre(content(text)));
  }
  EXPECT_THAT(events_of("<tool_call>?</tool_call>\n<tool_call>{\"name\":\"f\"}</tool_call>", given),
              ElementsAre(content("<tool_call>?</tool_call>"), call("f", "{}")));
}

TEST(ChatAnswer, XmlIsACallWithTheTypesOfItsSchema) {
  const Given given = {.form = ToolCallForm::kXml};
  const std::string function =
      "<function=f>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\n3\n\n4\n</parameter>\n"
      "<parameter=l>\n[1]\n</parameter>\n<parameter=x>\n5\n</parameter>\n</function>";
  const auto made = call("f", R"({"n":3,"s":"3\n\n4","l":[1],"x":"5"})");
  EXPECT_THAT(events_of("<tool_call>\n" + function + "\n</tool_call>", given), ElementsAre(made));
  EXPECT_THAT(events_of(function, given), ElementsAre(made));
  EXPECT_THAT(events_of("<tool_call>\n" + function + "\n" + function + "</tool_call>", given),
              ElementsAre(made, made));
  for (const char* const text : {"<tool_call>f</tool_call>", "<function=></function>",
                                 "<function=f><parameter=n>1</function>"}) {
    EXPECT_THAT(events_of(text, given), ElementsAre(content(text)));
  }
}

TEST(ChatAnswer, PythonIsACall) {
  const Given given = {.form = ToolCallForm::kPython};
  const auto tagged = [](const std::string& text) {
    return "<|tool_call_start|>" + text + "<|tool_call_end|>";
  };
  EXPECT_THAT(
      events_of(
          tagged(R"([f(a='it\'s', b="x]\u00e9\q"), g.h(c=[1, -2.5e3], d={'k': None,}, e=True)])") +
              "Hm.",
          given),
      ElementsAre(call("f", "{\"a\":\"it's\",\"b\":\"x]\u00e9\\\\q\"}"),
                  call("g.h", R"({"c":[1,-2500.0],"d":{"k":null},"e":true})"), content("Hm.")));
  EXPECT_THAT(events_of(tagged("[f(s='<|tool_call_end|>')]"), given),
              ElementsAre(call("f", R"({"s":"<|tool_call_end|>"})")));
  for (const char* const text : {"[]", "f()", "[f(1)]", "[f(a=g())]", "[f(a=1, a=2)]", "[f(a=')]",
                                 "[f(a='\\ud800')]", "[f(a=1)] x", "[f(a=1e)]"}) {
    const std::string all = tagged(text);
    EXPECT_THAT(events_of(all, given), ElementsAre(content(all)));
  }
  const std::string deep = tagged("[f(a=" + std::string(40, '[') + std::string(40, ']') + ")]");
  EXPECT_THAT(events_of(deep, given), ElementsAre(content(deep)));
}

TEST(ChatAnswer, APythonCallHasAtMost1024Arguments) {
  const Given given = {.form = ToolCallForm::kPython};
  const auto calls_with = [](int count) {
    std::string arguments;
    for (int i = 0; i < count; ++i) arguments += "a" + std::to_string(i) + "=0,";
    return "<|tool_call_start|>[f(" + arguments + ")]<|tool_call_end|>";
  };
  const std::string most = calls_with(1024);
  EXPECT_THAT(read(given, {most}), testing::Not(ElementsAre(content(most))));
  const std::string more = calls_with(1025);
  EXPECT_THAT(read(given, {more}), ElementsAre(content(more)));
}

TEST(ChatAnswer, ListsAndFencedJsonAreCalls) {
  const std::string list = R"([{"name": "f", "arguments": {"n": 1}}, {"name": "g"}])";
  const auto calls = ElementsAre(call("f", R"({"n":1})"), call("g", "{}"));
  EXPECT_THAT(events_of("<TOOLCALL>" + list + "</TOOLCALL>", {.form = ToolCallForm::kUpperList}),
              calls);
  EXPECT_THAT(
      events_of("<tool_calls>" + list + "</tool_calls>", {.form = ToolCallForm::kLowerList}),
      calls);
  const Given fenced = {.form = ToolCallForm::kFenced};
  EXPECT_THAT(events_of("```json\n{\"name\":\"f\",\"arguments\":{\"s\":\"```\"}}\n```", fenced),
              ElementsAre(call("f", R"({"s":"```"})")));
  // JSON that names no tool of the request is content.
  const std::string data = "```json\n{\"name\": \"Ann\", \"arguments\": {}}\n```";
  EXPECT_THAT(events_of(data, fenced), ElementsAre(content(data)));
}

TEST(ChatAnswer, TextAfterTheOnlyCallIsDropped) {
  const std::string one = "<tool_call>{\"name\":\"f\"}</tool_call>";
  EXPECT_THAT(events_of("a " + one + one + "b", {.form = ToolCallForm::kTagged, .one_call = true}),
              ElementsAre(content("a"), call("f", "{}")));
}

TEST(ToolCalls, TheFormIsFoundInACallThatATemplateWrote) {
  const std::string json = R"({"name": "zqF", "arguments": {"zqK": "zqV"}})";
  const std::string xml = "<function=zqF>\n<parameter=zqK>\nzqV\n</parameter>\n</function>";
  EXPECT_EQ(form_of("a\n<tool_call>\n" + json + "\n</tool_call><|im_end|>\n"),
            ToolCallForm::kTagged);
  EXPECT_EQ(form_of("<tool_call>\n" + xml + "\n</tool_call>"), ToolCallForm::kXml);
  EXPECT_EQ(form_of(xml), ToolCallForm::kXml);
  EXPECT_EQ(form_of("<|tool_call_start|>[zqF(zqK='zqV')]<|tool_call_end|>"), ToolCallForm::kPython);
  EXPECT_EQ(form_of("<TOOLCALL>[" + json + "]</TOOLCALL>"), ToolCallForm::kUpperList);
  EXPECT_EQ(form_of("<tool_calls>[\n " + json + "\n]</tool_calls><|eom|>"),
            ToolCallForm::kLowerList);
  EXPECT_EQ(form_of("```json\n" + json + "\n```"), ToolCallForm::kFenced);
  EXPECT_EQ(form_of("<tool_call>zqF\n<arg_key>zqK</arg_key></tool_call>"), std::nullopt);
  EXPECT_EQ(form_of(json), std::nullopt);
}

// The tool calls that published templates write. The project does not include the templates, but
// they may be next to the source tree.
TEST(ToolCalls, TheFormsOfPublishedTemplates) {
  const std::string path = "../shared/data/chat/traits.json";
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << "there is no " << path << ", which is not part of the project";
  using Form = ToolCallForm;
  const std::map<std::string, Form> expected = {
      {"granite-4.0", Form::kTagged},  {"jamba", Form::kLowerList},   {"lfm2.5", Form::kPython},
      {"nemotron-3-nano", Form::kXml}, {"qwen2.5", Form::kTagged},    {"qwen3", Form::kTagged},
      {"qwen3-coder", Form::kXml},     {"qwen3-next", Form::kTagged}, {"qwen3.5", Form::kXml}};
  std::map<std::string, Form> found;
  const Json all = Json::parse(file);
  for (const auto& [name, traits] : all.items()) {
    for (const char* const key : {"tool_call_content_absent", "tool_call_content_empty"}) {
      if (!traits.contains(key) || traits[key].is_null()) continue;
      if (const auto form = form_of(traits[key].get<std::string>())) found.emplace(name, *form);
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(ChatAnswer, HoldsBackABoundedAmount) {
  ChatAnswer answer = answer_of({.form = ToolCallForm::kTagged});
  answer.add("a" + std::string(1 << 20, ' '));
  EXPECT_LT(answer.bytes() - std::ssize(answer.take()[0].text), 1 << 20);
  answer.add("<tool_call>" + std::string(2 * kMaxCallBytes, 'x'));
  EXPECT_GT(std::ssize(answer.take()[0].text), 2 * kMaxCallBytes - 5000);
}

// Checks the properties of tests/fuzz.
TEST(ChatAnswerFuzz, Properties) {
  constexpr int kAnswers = kInputs / 5;
  const int calls = walk(answer_seeds(), Mutator(9, answer_words()), check_chat_answer, kAnswers);
  EXPECT_GT(calls, kAnswers / 50);
  EXPECT_LT(calls, kAnswers);
}

}  // namespace
}  // namespace runnel
