// Conversations over gRPC: they become the values of their rendered prompt, as over HTTP
// (tests/server/openai/chat_test.cc).
#include "server/grpc/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/host/chat_input.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/server/openai/chat_models.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

v1::ChatMessage message(const std::string& role, const std::string& content) {
  v1::ChatMessage made;
  made.set_role(role);
  made.set_content(content);
  return made;
}

v1::TemplateVariable& add_variable(v1::Conversation& conversation, const std::string& name) {
  v1::TemplateVariable& added = *conversation.add_variables();
  added.set_name(name);
  return added;
}

// The model's values are 0 to 99, so texts use capital letters.
v1::GenerateRequest chat_request(const std::vector<v1::ChatMessage>& messages,
                                 const std::string& session = "") {
  v1::GenerateRequest request = generate_request({}, 5, 7);
  if (!session.empty()) request.mutable_origin()->set_session(session);
  for (const v1::ChatMessage& each : messages) {
    *request.mutable_conversation()->add_messages() = each;
  }
  return request;
}

std::vector<int32_t> bytes_of_text(const std::string& text) { return {text.begin(), text.end()}; }

// The values that the model samples after `text`, `said` and `more`.
std::vector<int32_t> continued(TestServer& test, const std::string& text,
                               const std::vector<int32_t>& said = {},
                               const std::string& more = "") {
  std::vector<int32_t> values = bytes_of_text(text);
  values.insert(values.end(), said.begin(), said.end());
  values.insert(values.end(), more.begin(), more.end());
  return test.generate(generate_request(values, 5, 7)).values[0];
}

TEST(Conversation, IsReadAsThePromptOfItsRendering) {
  TestServer test(chat_model());
  const Generated out =
      test.generate(chat_request({message("system", "BE"), message("user", "HI")}));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.values.at(0), continued(test, "[S]BE\n[U]HI\n[A]"));
  EXPECT_EQ(out.finished.at(0).usage().prompt_values(), 15);
  EXPECT_EQ(out.finished.at(0).usage().cached_values(), 0);
}

TEST(Conversation, TheTemplateKnowsTheTime) {
  TestServer test(chat_model(kChatTemplate + "{{ strftime_now('%Y') }}"));
  const auto year = [] {
    const std::time_t now = std::time(nullptr);
    std::tm time = {};
    return std::to_string(1900 + localtime_r(&now, &time)->tm_year);
  };
  std::string before, after;
  std::vector<int32_t> found;
  do {  // repeats if the year changes during the call
    before = year();
    found = test.generate(chat_request({message("user", "HI")})).values.at(0);
    after = year();
  } while (before != after);
  EXPECT_EQ(found, continued(test, "[U]HI\n[A]" + after));
}

TEST(Conversation, CallsToolsAndVariablesReachTheTemplate) {
  TestServer test(chat_model(kChatTemplate + "{% if tools %}{{ tools[0].function.name }}{{ N + 1 "
                                             "}}{{ X }}{{ F }}{{ T }}{{ O }}{% endif %}"));
  v1::GenerateRequest request = chat_request({message("user", "HI")});
  v1::Conversation& conversation = *request.mutable_conversation();
  v1::ChatMessage& call = *conversation.add_messages();
  call.set_role("assistant");
  call.add_tool_calls()->set_name("F");
  call.mutable_tool_calls(0)->set_arguments(R"({"Z": 1, "A": [2]})");
  *conversation.add_messages() = message("tool", "3");
  conversation.add_tools(R"({"type": "function", "function": {"name": "F"}})");
  add_variable(conversation, "N").set_integer(41);
  add_variable(conversation, "X").set_number(0.5);
  add_variable(conversation, "F").set_flag(false);
  add_variable(conversation, "T").set_text("T");
  add_variable(conversation, "O");
  const Result<Conversation> made = conversation_of(conversation);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(json_text(made->messages[1]),
            R"({"role":"assistant","tool_calls":[{"type":"function","function":)"
            R"({"name":"F","arguments":{"Z":1,"A":[2]}}}]})");
  const auto prompt = prompt_of_call(*test.server.models().all()->at("fake")->chat, *made, false,
                                     ChatStart::kFresh, WorkLimit());
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  const std::string text(prompt->values.begin(), prompt->values.end());
  EXPECT_THAT(text, HasSubstr("[T]3\n[A]F420.5FalseTNone"));
}

TEST(Conversation, RefusalsNameTheMember) {
  TestServer test(chat_model());
  using Change = std::function<void(v1::Conversation&)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto& c) { c.clear_messages(); },
       "conversation.messages is empty; send at least one message"},
      {[](auto& c) { c.mutable_messages(0)->set_role("king"); },
       "conversation.messages[0].role is 'king'; expected 'system', 'developer', 'user', "
       "'assistant' or 'tool'"},
      {[](auto& c) { c.mutable_messages(0)->clear_content(); },
       "conversation.messages[0].content is not set; expected a text"},
      {[](auto& c) { c.mutable_messages(0)->add_tool_calls(); },
       "conversation.messages[0].tool_calls[0].name is not set; expected a text"},
      {[](auto& c) { c.mutable_messages(0)->add_tool_calls()->set_name("f"); },
       "conversation.messages[0].tool_calls is for the assistant's messages"},
      {[](auto& c) {
         c.mutable_messages(0)->add_tool_calls()->set_name("f");
         c.mutable_messages(0)->mutable_tool_calls(0)->set_arguments("[1]");
       },
       "conversation.messages[0].tool_calls[0].arguments is an array of 1; expected a JSON object, "
       "as text"},
      {[](auto& c) { c.add_tools("{}"); },
       "conversation.tools[0].type is not set; expected 'function'"},
      {[](auto& c) { c.add_tools(R"({"type": "function", "function": {}})"); },
       "conversation.tools[0].function.name is not set; expected a text"},
      {[](auto& c) { add_variable(c, "messages").set_flag(true); },
       "conversation.variables.messages is not a variable that a request may set; leave it out"},
      {[](auto& c) { add_variable(c, "x").set_number(INFINITY); },
       "conversation.variables.x is not a number; expected a finite one"},
      {[](auto& c) { add_variable(c, "x"), add_variable(c, "y"), add_variable(c, "x"); },
       "conversation.variables.x is there twice; send one"},
      {[](auto& c) { c.set_continues(true); },
       "conversation.continues is for a last message of the assistant that has a text and no "
       "calls"}};
  for (const auto& [change, expected] : cases) {
    v1::GenerateRequest request = chat_request({message("user", "HI")});
    change(*request.mutable_conversation());
    const grpc::Status status = test.generate(request).status;
    EXPECT_EQ(status.error_code(), kInvalid) << expected;
    EXPECT_EQ(status.error_message(), expected);
    EXPECT_EQ(field_of(status), expected.substr(0, expected.find_first_of("[ .", 13)));
  }
}

TEST(Conversation, ToolsAreJsonOfALimitedDepth) {
  TestServer test(chat_model());
  const auto status_of = [&](const std::string& tool) {
    v1::GenerateRequest request = chat_request({message("user", "HI")});
    request.mutable_conversation()->add_tools(tool);
    return test.generate(request).status;
  };
  const auto nested = [](int depth) {
    std::string schema;
    for (int i = 1; i < depth; ++i) schema += R"({"a":)";
    schema += "{}" + std::string(static_cast<size_t>(depth - 1), '}');
    return R"({"type":"function","function":{"name":"f","parameters":)" + schema + "}}";
  };
  EXPECT_TRUE(status_of(nested(32)).ok());
  EXPECT_THAT(status_of(nested(33)).error_message(),
              HasSubstr("conversation.tools[0] is no JSON object: nested deeper than 34 levels"));
  EXPECT_THAT(status_of("{'a'}").error_message(),
              HasSubstr("conversation.tools[0] is no JSON object: not valid JSON"));
  EXPECT_EQ(field_of(status_of("x")), "conversation.tools");
}

TEST(Conversation, AModelWithoutATemplateSaysWhy) {
  ServedModel model = served_fake("fake");
  model.no_chat = "it has no words";
  TestServer test(std::move(model));
  const grpc::Status status = test.generate(chat_request({message("user", "HI")})).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(),
              HasSubstr("model 'fake' has no chat template: it has no words; name one"));
  grpc::ClientContext context;
  v1::ModelInfo info;
  ASSERT_TRUE(test.models->GetModel(&context, {}, &info).ok());
  EXPECT_EQ(info.chat().missing(), "it has no words");
}

TEST(Conversation, AModelDescribesItsTemplate) {
  TestServer test(chat_model());
  grpc::ClientContext context;
  v1::ModelInfo info;
  ASSERT_TRUE(test.models->GetModel(&context, {}, &info).ok());
  EXPECT_EQ(info.chat().template_name(), "chat.jinja");
  EXPECT_EQ(info.chat().stop_text(), "\n[U]");
  EXPECT_FALSE(info.chat().begins_thinking());
}

TEST(Conversation, AModelReportsThatItsAnswersBeginWithThinking) {
  TestServer test(chat_model(kChatTemplate + "{% if add_generation_prompt %}<think>{% endif %}"));
  grpc::ClientContext context;
  v1::ModelInfo info;
  ASSERT_TRUE(test.models->GetModel(&context, {}, &info).ok());
  EXPECT_TRUE(info.chat().begins_thinking());
}

TEST(Conversation, TheTemplatesErrorIsTheReason) {
  TestServer test(
      chat_model("{% for m in messages %}{% if m.role == 'tool' %}"
                 "{{ raise_exception('no tools') }}{% endif %}{% endfor %}" +
                 kChatTemplate));
  const grpc::Status status = test.generate(chat_request({message("tool", "42")})).status;
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_EQ(status.error_message(), "conversation.messages: no tools");
}

TEST(Conversation, TheEndOfATurnEndsTheAnswer) {
  constexpr int32_t kEnd = 42;
  const std::string source =
      "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}[A]{% endif %}";
  TestServer test(
      chat_model(source, tokenizer_of("<|end|>", {{.text = "<|end|>", .value = kEnd}})));
  v1::GenerateRequest request = chat_request({message("user", "HI")});
  request.clear_max_values();  // uses limits.chat_values
  const Generated out = test.generate(request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.finished.at(0).reason(), v1::Finished::EOS);
  EXPECT_EQ(out.values.at(0).back(), kEnd);
  request.set_ignore_eos(true);
  EXPECT_EQ(test.generate(request).values.at(0).size(), 4096U);
}

TEST(Conversation, ATextThatEndsATurnEndsTheAnswer) {
  TestServer test(chat_model(kChatTemplate, tokenizer_of("X\n[U]")));
  const Generated out = test.generate(chat_request({message("user", "HI")}));
  EXPECT_EQ(out.finished.at(0).reason(), v1::Finished::STOP);
  EXPECT_EQ(out.text.at(0), "X\n[U]") << "the text of runs is that of their values";
}

TEST(Conversation, AFinalMessageIsContinued) {
  TestServer test(chat_model());
  v1::GenerateRequest request =
      chat_request({message("user", "HI"), message("assistant", "WELL, ")});
  request.mutable_conversation()->set_continues(true);
  EXPECT_EQ(test.generate(request).values[0], continued(test, "[U]HI\n[A]WELL, "));
}

TEST(Conversation, ASessionReadsOnlyTheNewMessages) {
  TestServer test(chat_model());
  ASSERT_TRUE(test.create("talk").ok());
  const std::string begin = "[S]BE\n[U]HI\n[A]";
  const Generated first =
      test.generate(chat_request({message("system", "BE"), message("user", "HI")}, "talk"));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.values.at(0), continued(test, begin));
  const Generated second = test.generate(chat_request({message("user", "SO")}, "talk"));
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.values.at(0), continued(test, begin, first.values.at(0), "\n[U]SO\n[A]"));
  EXPECT_EQ(second.finished.at(0).usage().prompt_values(), 10);

  const grpc::Status late = test.generate(chat_request({message("system", "BE")}, "talk")).status;
  EXPECT_EQ(late.error_code(), kInvalid);
  EXPECT_EQ(field_of(late), "conversation.messages");
  EXPECT_EQ(late.error_message(),
            "conversation.messages has a message of the role 'system', but the session has begun: "
            "send it with the first messages");
  v1::GenerateRequest tools = chat_request({message("user", "A")}, "talk");
  tools.mutable_conversation()->add_tools(R"({"type":"function","function":{"name":"f"}})");
  EXPECT_EQ(field_of(test.generate(tools).status), "conversation.tools");
}

TEST(Conversation, ATemplateWhoseMessagesDependOnEarlierOnesTakesNoSession) {
  TestServer test(
      chat_model("{% for m in messages %}{{ loop.index }}: {{ m.content }}{{ '\\n' }}"
                 "{% endfor %}"));
  ASSERT_TRUE(test.create("talk").ok());
  const grpc::Status status = test.generate(chat_request({message("user", "HI")}, "talk")).status;
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_EQ(field_of(status), "origin.session");
  EXPECT_THAT(status.error_message(), HasSubstr("send the whole conversation without origin"));
}

TEST(Conversation, AStateTokenReadsOnlyTheNewMessages) {
  const TempDir folder;
  ServerOptions options;
  options.host.seal_keys = folder.path() + "/seal";
  write_file(options.host.seal_keys, std::string(32, 's'));
  ASSERT_EQ(chmod(options.host.seal_keys.c_str(), 0600), 0);
  TestServer test(chat_model(), options);
  v1::GenerateRequest request = chat_request({message("user", "HI")});
  request.set_include_state(true);
  const Generated first = test.generate(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  request = chat_request({message("user", "SO")});
  request.mutable_origin()->set_token(first.finished.at(0).token());
  const Generated second = test.generate(request);
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.values.at(0), continued(test, "[U]HI\n[A]", first.values.at(0), "\n[U]SO\n[A]"));
}

TEST(Conversation, AResentConversationReportsItsCachedValues) {
  EngineOptions options;
  options.prefix_cache_bytes = 1 << 20;
  TestServer test(chat_model(kChatTemplate, Tokenizer::of_bytes(), options));
  std::vector<v1::ChatMessage> messages = {message("user", "WHAT IS IT THAT RUNS?")};
  const v1::Usage first = test.generate(chat_request(messages)).finished[0].usage();
  EXPECT_EQ(first.cached_values(), 0);
  messages.push_back(message("assistant", "!"));
  messages.push_back(message("user", "WHY?"));
  const v1::Usage second = test.generate(chat_request(messages)).finished[0].usage();
  EXPECT_GE(second.cached_values(), 20);
  EXPECT_LT(second.cached_values(), first.prompt_values() + 1);
}

TEST(Conversation, RenderingCountsAgainstCallBytes) {
  ServerOptions options;
  options.host.call_bytes = 16 << 20;
  TestServer test(chat_model(), options);
  EXPECT_TRUE(test.generate(generate_request({1}, 1)).status.ok());
  EXPECT_THAT(test.generate(chat_request({message("user", "HI")})).status.error_message(),
              HasSubstr("limits.call_bytes allows"));
}

}  // namespace
}  // namespace runnel
