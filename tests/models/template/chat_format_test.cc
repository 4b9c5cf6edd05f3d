#include "models/template/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/ordered_json.h"
#include "models/template/rwkv7_g1.h"
#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// Writes roles unchanged, only the content of a call's message, and no parts.
constexpr const char* kPlain =
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ '<|pause|>' + m.role + '\\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments.zqK }}{% endfor %}"
    "{{ '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|pause|>assistant\\n' }}"
    "{% if enable_thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}";

std::shared_ptr<const Tokenizer> words() {
  return load_tokenizer("tests/golden/tokenizers/words").value();
}

std::shared_ptr<const ChatFormat> format_of(const std::string& source) {
  auto format = ChatFormat::make({.source = source, .name = "t"}, words());
  EXPECT_TRUE(format.ok()) << format.status().message();
  return format.ok() ? *format : nullptr;
}

Conversation messages_of(const std::string& messages) {
  Conversation conversation;
  conversation.messages = parse_ordered_json(messages, "messages", {1 << 20, 100'000, 32}).value();
  return conversation;
}

TEST(ChatFormat, ReadsTheTemplatesTextAsControlTokens) {
  const auto format = format_of(kPlain);
  const Conversation conversation = messages_of(R"([{"role": "user", "content": "a<|end|>b"}])");
  const auto values = format->encode(format->render(conversation).value()).value();
  EXPECT_EQ(std::ranges::count(values, 900), 1);
}

TEST(ChatFormat, ProbesFindTheTraitsOfTheTemplate) {
  const auto format = format_of(kPlain);
  const ChatTraits& traits = format->traits();
  EXPECT_TRUE(traits.system);
  EXPECT_FALSE(traits.developer);  // the template treats it like any other role
  EXPECT_EQ(traits.generation_prompt, "<|pause|>assistant\n");
  EXPECT_FALSE(traits.thinking_open);
  EXPECT_TRUE(traits.thinking_switch);
  EXPECT_EQ(traits.after_answer.bytes,
            "<|end|>\n<|pause|>user\nzqUSERqz<|end|>\n<|pause|>assistant\n");
  EXPECT_TRUE(traits.history_begins_next);
  EXPECT_TRUE(traits.prompt_and_answer_begin_next);
  EXPECT_FALSE(traits.takes_parts);
  EXPECT_FALSE(traits.tools_change_prompt);
  EXPECT_EQ(traits.call_without_content, std::nullopt);
  EXPECT_THAT(traits.call_with_empty_content.value(), HasSubstr("zqFzqV"));
  EXPECT_EQ(format->end_of_turn(), 900);
  EXPECT_EQ(format->stop_text(), "");
}

// The number of values shared by both turns. `begins`: whether both really begin with them.
int64_t shared(const ChatFormat& format, bool& begins) {
  Conversation first = messages_of(R"([{"role": "user", "content": "ab"}])");
  Conversation second = messages_of(
      R"([{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"},
          {"role": "user", "content": "d"}])");
  for (Conversation* turn : {&first, &second}) turn->add_generation_prompt = true;
  const auto values = format.encode(format.render(first).value()).value();
  const auto next = format.encode(format.render(second).value()).value();
  const int64_t count = format.shared_with_next(first, values);
  begins = count < std::ssize(values) && count <= std::ssize(next) &&
           std::equal(values.begin(), values.begin() + count, next.begin());
  return count;
}

TEST(ChatFormat, ATurnSharesItsPromptWithTheNextTurn) {
  bool begins = false;
  // A control token begins the generation prompt, so no token can merge across that border.
  const auto marked = format_of(kPlain);
  const auto history = [&](const ChatFormat& format) {
    const Conversation conversation = messages_of(R"([{"role": "user", "content": "ab"}])");
    return std::ssize(format.encode(format.render(conversation).value()).value());
  };
  EXPECT_EQ(shared(*marked, begins), history(*marked));
  EXPECT_TRUE(begins);
  // Text follows text, so the last token might merge with the next one.
  const auto plain = format_of(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}");
  EXPECT_EQ(shared(*plain, begins), history(*plain) - 1);
  EXPECT_TRUE(begins);
  // Templates that write the end of a conversation first share nothing.
  const auto reversed = format_of(
      "{% if add_generation_prompt %}go {% endif %}{% for m in messages %}{{ m.content }}"
      "{% endfor %}");
  EXPECT_EQ(shared(*reversed, begins), 0);
}

TEST(ChatFormat, NewMessagesFollowAnyAnswer) {
  const auto format = format_of(kPlain);
  EXPECT_TRUE(format->traits().follows_any_answer);
  Conversation news = messages_of(R"([{"role": "user", "content": "d<|end|>"}])");
  news.add_generation_prompt = true;
  const MarkedText text = format->render_next(news).value();
  EXPECT_EQ(text.bytes, "<|end|>\n<|pause|>user\nd<|end|><|end|>\n<|pause|>assistant\n");
  EXPECT_EQ(std::ranges::count(format->encode(text).value(), 900), 2) << "a user wrote the other";
  Conversation whole = messages_of(
      R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"},
          {"role": "assistant", "content": "c"}, {"role": "user", "content": "d<|end|>"}])");
  whole.add_generation_prompt = true;
  EXPECT_TRUE(format->render(whole).value().bytes.ends_with("c" + text.bytes));
  // New messages are adapted to the template, and the template may refuse them.
  news.messages[0]["content"] = OrderedJson::array({{{"type", "text"}, {"text", "e"}}});
  EXPECT_THAT(format->render_next(news).value().bytes, HasSubstr("user\ne<|end|>"));
  news.messages[0]["role"] = "tool";
  EXPECT_EQ(format->render_next(news).status().message(), "no tools here");
}

TEST(ChatFormat, DetectsMessagesThatDependOnEarlierOnes) {
  const auto format = format_of(
      "{% for m in messages %}{{ loop.index }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}go{% endif %}");
  EXPECT_FALSE(format->traits().follows_any_answer);
  const auto text = format->render_next(messages_of(R"([{"role": "user", "content": "a"}])"));
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.status().message(), HasSubstr("depends on earlier ones"));
}

TEST(ChatFormat, KnowsDevelopersAndOpenThinking) {
  const auto format = format_of(
      "{% for m in messages %}{{ 'D: ' if m.role == 'developer' else 'U: ' }}{{ m.content }}\n"
      "{% endfor %}{% if add_generation_prompt %}A: <think>\n{% endif %}");
  EXPECT_TRUE(format->traits().developer);
  EXPECT_TRUE(format->traits().thinking_open);
  EXPECT_FALSE(format->end_of_turn().has_value());
  EXPECT_EQ(format->stop_text(), "\nU:");
}

TEST(ChatFormat, WithoutAControlTokenTheTextOfTheNextTurnEndsAnAnswer) {
  const auto format = format_of(kRwkv7G1Template);
  EXPECT_FALSE(format->end_of_turn().has_value());
  EXPECT_EQ(format->stop_text(), "\n\nUser:");
}

TEST(ChatFormat, TheBuiltInTemplateHasToolsAsItsAuthorDescribesThem) {
  const auto format = format_of(kRwkv7G1Template);
  EXPECT_TRUE(format->traits().tools_change_prompt);
  EXPECT_THAT(format->traits().call_without_content.value_or(""),
              HasSubstr("```json\n{\"name\": "));
  Conversation conversation = messages_of(
      R"([{"role": "system", "content": "Be\n\nkind."}, {"role": "user", "content": "a"},
          {"role": "assistant", "content": null, "tool_calls": [
            {"function": {"name": "f", "arguments": "{\"k\": \"User: b\"}"}}]},
          {"role": "tool", "content": "c\n\nUser: d"}])");
  conversation.tools =
      parse_ordered_json(
          R"([{"type": "function", "function": {"name": "f", "description": "x\n\ny",
           "parameters": {"type": "object", "properties": {"k": {"type": "string"}}}}}])",
          "tools", {1 << 20, 100'000, 32})
          .value();
  conversation.add_generation_prompt = true;
  EXPECT_EQ(format->render(conversation).value().bytes,
            "System: Be\nkind.\nTools:\n[\n"
            "{\"name\": \"f\", \"description\": \"x\\n\\ny\", "
            "\"arguments\": {\"k\": {\"type\": \"string\"}}}\n"
            "]\nReturn only a JSON function call.\n\n"
            "User: a\n\n"
            "Assistant: ```json\n{\"name\": \"f\", \"arguments\": {\"k\": \"User: b\"}}\n```\n\n"
            "User: Function output:\nc\nUser: d\n\n"
            "Assistant:");
}

TEST(ChatFormat, AdaptsMessagesToTheTemplate) {
  const auto text = format_of(kPlain)->render(messages_of(
      R"([{"role": "developer", "content": [{"type": "text", "text": "a"},
                                            {"type": "text", "text": "b"}]},
          {"role": "assistant", "content": null, "tool_calls": [
            {"function": {"name": "f", "arguments": "{\"zqK\": \"1\", \"a\": [2]}"}}]},
          {"role": "assistant", "tool_calls": [
            {"function": {"name": "g", "arguments": {"zqK": "2"}}}]}])"));
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes,
            "<|pause|>system\na\nb<|end|>\n<|pause|>assistant\nf1<|end|>\n"
            "<|pause|>assistant\ng2<|end|>\n");
}

TEST(ChatFormat, DoesNotChangeMessagesThatTheTemplateSupports) {
  const auto format = format_of(
      "{% for m in messages %}{% if m.content is string %}{{ m.role ~ m.content }}"
      "{% else %}{% for part in m.content or [] %}{{ m.role ~ part.text }},{% endfor %}{% endif %}"
      "{{ m.tool_calls[0].function.arguments|tojson if m.tool_calls }}"
      "{{ '!' if m.role == 'developer' }}{% endfor %}");
  const auto text = format->render(messages_of(
      R"([{"role": "developer", "content": [{"type": "text", "text": "a"},
                                            {"type": "text", "text": "b"}]},
          {"role": "assistant", "tool_calls": [{"function": {"arguments": ""}}]}])"));
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes, "developera,developerb,!{}");
}

TEST(ChatFormat, NamesArgumentsThatAreNotAnObject) {
  const auto format = format_of(kPlain);
  for (const char* const arguments : {"[1]", "{", "1"}) {
    const std::string message =
        std::string(R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": ")") +
        arguments + R"("}}]}])";
    const auto text = format->render(messages_of(message));
    ASSERT_FALSE(text.ok()) << arguments;
    EXPECT_THAT(text.status().message(), HasSubstr("messages[0].tool_calls[0].function.arguments"));
  }
}

TEST(ChatFormat, ATemplateThatRefusesAPlainConversationIsRefused) {
  for (const auto& [source, message] : std::vector<std::pair<std::string, std::string>>{
           {"{{ raise_exception('never') }}", "the template refuses a plain conversation: never"},
           {"{{ messages[0].content.x.y }}",
            "the template refuses a plain conversation: t, line 1"},
           {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "the template refuses a plain conversation: t, line 1: the template takes"}}) {
    const auto format = ChatFormat::make({.source = source, .name = "t"}, words());
    ASSERT_FALSE(format.ok());
    EXPECT_THAT(format.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace runnel
