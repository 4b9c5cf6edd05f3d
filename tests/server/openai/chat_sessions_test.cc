// Chat on a named session: each call sends only the new messages, and the session reads what a
// completion of the joined values would read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/openai/chat_models.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

const std::string kChatPath = "/v1/chat/completions";

Json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// A turn on session "talk". The model's values are 0 to 99, so texts use capital letters.
Json turn(const std::vector<Json>& news, int64_t tokens = 5) {
  return {{"session", "talk"},
          {"messages", news},
          {"max_completion_tokens", tokens},
          {"seed", 7},
          {"return_token_ids", true}};
}

Json turn_of_user(const std::string& content, int64_t tokens = 5) {
  return turn({message("user", content)}, tokens);
}

void make_session(const OpenAiServer& test) {
  ASSERT_EQ(test.post("/v1/sessions", {{"id", "talk"}}).status, 200);
}

std::vector<int32_t> ids_of(const Json& answer) { return answer["choices"][0]["token_ids"]; }

// The values that a session has read and sampled, joined by the test.
class Joined {
 public:
  void add(const std::string& text) { values_.insert(values_.end(), text.begin(), text.end()); }
  void add(int32_t value) { values_.push_back(value); }
  void add(const std::vector<int32_t>& values) {
    values_.insert(values_.end(), values.begin(), values.end());
  }
  std::vector<int32_t> completed(const OpenAiServer& test, int64_t tokens = 5) const {
    return ids_of(test.complete({{"prompt", values_},
                                 {"max_tokens", tokens},
                                 {"seed", 7},
                                 {"ignore_eos", true},
                                 {"return_token_ids", true}})
                      .body);
  }
  int64_t size() const { return std::ssize(values_); }

 private:
  std::vector<int32_t> values_;
};

TEST(ChatSessions, TurnsEqualACompletionOfTheJoinedValues) {
  const OpenAiServer test({}, chat_model());
  make_session(test);
  Joined joined;
  joined.add("[S]BE KIND\n[U]HI\n[A]");
  Json body = turn({message("system", "BE KIND"), message("user", "HI")});
  for (const int64_t given : {20, 10, 10}) {
    const ApiAnswer answer = test.post(kChatPath, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.head, HasSubstr("x-session-id: talk"));
    const std::vector<int32_t> said = ids_of(answer.body);
    EXPECT_EQ(said, joined.completed(test));
    EXPECT_EQ(answer.body["usage"]["prompt_tokens"], given) << "the new messages alone";
    EXPECT_EQ(answer.body["usage"]["completion_tokens"], 5);
    joined.add(said);
    const Json& choice = answer.body["choices"][0];
    EXPECT_EQ(choice["session"], "talk");
    EXPECT_EQ(choice["position"], joined.size());
    // The answer was cut off, so the session reads its end first.
    joined.add("\n[U]SO\n[A]");
    body = turn_of_user("SO");
    body["position"] = choice["position"];
  }
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 7; }));
}

TEST(ChatSessions, AStreamIsTheSameTurn) {
  const OpenAiServer test({}, chat_model());
  make_session(test);
  Joined joined;
  joined.add("[U]HI\n[A]");
  std::vector<int32_t> said;
  for (const std::string& event : test.stream(turn_of_user("HI"), kChatPath)) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    for (const Json& id : chunk["choices"][0]["token_ids"]) said.push_back(id);
  }
  EXPECT_EQ(said, joined.completed(test));
}

TEST(ChatSessions, AnAnswerThatEndedByATokenIsNotEndedAgain) {
  const std::string source =
      "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}[A]{% endif %}";
  constexpr int32_t kEnd = 42;
  const OpenAiServer test(
      {}, chat_model(source, tokenizer_of("<|end|>", {{.text = "<|end|>", .value = kEnd}})));
  make_session(test);
  const Json first = test.post(kChatPath, turn_of_user("HI", 3000)).body;
  Joined joined;
  joined.add("[U]HI");
  joined.add(kEnd);
  joined.add("[A]");
  joined.add(ids_of(first));
  ASSERT_EQ(ids_of(first).back(), kEnd);
  joined.add("[U]SO");
  joined.add(kEnd);
  joined.add("[A]");
  Json body = turn_of_user("SO");
  body["ignore_eos"] = true;
  const Json second = test.post(kChatPath, body).body;
  EXPECT_EQ(second["usage"]["prompt_tokens"], 9);
  EXPECT_EQ(ids_of(second), joined.completed(test));
}

TEST(ChatSessions, AnAnswerThatEndedByATextIsNotEndedAgain) {
  // Each value is a letter and then the end of a turn in kChatTemplate.
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of("X\n[U]")));
  make_session(test);
  const Json first = test.post(kChatPath, turn_of_user("HI")).body;
  EXPECT_EQ(first["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(first["usage"]["completion_tokens"], 1);
  Joined joined;
  joined.add("[U]HI\n[A]");
  joined.add(ids_of(first));
  joined.add("SO\n[A]");
  const Json second = test.post(kChatPath, turn_of_user("SO")).body;
  EXPECT_EQ(second["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(ids_of(second), joined.completed(test, 1));
}

TEST(ChatSessions, AFinalMessageIsContinued) {
  const OpenAiServer test({}, chat_model());
  make_session(test);
  Joined joined;
  joined.add("[U]HI\n[A]");
  joined.add(ids_of(test.post(kChatPath, turn_of_user("HI")).body));
  joined.add("\n[U]SO\n[A]WELL, ");
  Json body = turn({message("user", "SO"), message("assistant", "WELL, ")});
  body["continue_final_message"] = true;
  const Json answer = test.post(kChatPath, body).body;
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 16);
  EXPECT_EQ(ids_of(answer), joined.completed(test));
}

TEST(ChatSessions, OtherCallsContinueTheSession) {
  const OpenAiServer test({}, chat_model());
  make_session(test);
  Joined joined;
  joined.add("[U]HI\n[A]");
  joined.add(ids_of(test.post(kChatPath, turn_of_user("HI")).body));
  ASSERT_EQ(test.post("/v1/sessions/talk/fork", {{"children", {"fork"}}}).status, 200);
  Joined forked = joined;
  joined.add("XY");
  const Json completion = test.complete({{"session", "talk"},
                                         {"prompt", "XY"},
                                         {"max_tokens", 4},
                                         {"seed", 7},
                                         {"return_token_ids", true}})
                              .body;
  EXPECT_EQ(ids_of(completion), joined.completed(test, 4));
  joined.add(ids_of(completion));
  joined.add("\n[U]SO\n[A]");
  EXPECT_EQ(ids_of(test.post(kChatPath, turn_of_user("SO")).body), joined.completed(test));
  forked.add("\n[U]NO\n[A]");
  Json body = turn_of_user("NO");
  body["session"] = "fork";
  EXPECT_EQ(ids_of(test.post(kChatPath, body).body), forked.completed(test));
}

TEST(ChatSessions, AConversationThatIsKeptIsContinued) {
  const OpenAiServer test({}, chat_model());
  Json body = turn_of_user("HI");
  body.erase("session");
  body["keep"] = true;
  const Json first = test.post(kChatPath, body).body;
  Joined joined;
  joined.add("[U]HI\n[A]");
  joined.add(ids_of(first));
  joined.add("\n[U]SO\n[A]");
  body = turn_of_user("SO");
  body["session"] = first["choices"][0]["session"];
  body["keep"] = false;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ids_of(test.post(kChatPath, body).body), joined.completed(test))
        << "it does not move";
  }
}

TEST(ChatSessions, LaterTurnsOfASessionWithToolsMayCallThem) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(call)));
  make_session(test);
  Json body = turn_of_user("HI", 1);
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  EXPECT_EQ(test.post(kChatPath, body).body["choices"][0]["finish_reason"], "length");
  body = turn({message("tool", "42")}, 1);
  const Json choice = test.post(kChatPath, body).body["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  body["tool_choice"] = "none";
  EXPECT_EQ(test.post(kChatPath, body).body["choices"][0]["message"]["content"], call);
}

TEST(ChatSessions, FieldsOfTheFirstTurnAreRefusedLater) {
  const OpenAiServer test({}, chat_model());
  make_session(test);
  ASSERT_EQ(test.post(kChatPath, turn_of_user("HI")).status, 200);
  const ApiAnswer system =
      test.post(kChatPath, turn({message("developer", "BE"), message("user", "A")}));
  EXPECT_EQ(system.status, 400);
  EXPECT_EQ(system.error("param"), "messages");
  EXPECT_EQ(system.error("message"),
            "messages has a message of the role 'developer', but the session has begun: send it "
            "with the first messages");
  Json body = turn_of_user("SO");
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const ApiAnswer tools = test.post(kChatPath, body);
  EXPECT_EQ(tools.status, 400);
  EXPECT_EQ(tools.error("param"), "tools");
  EXPECT_EQ(tools.error("message"),
            "tools is set, but the session has begun: it has read its tools with its first "
            "messages; leave tools out");
  EXPECT_EQ(test.get("/v1/sessions/talk").body["position"], 9 + 5) << "nothing was read";
}

TEST(ChatSessions, MisplacedMessagesAreRefusedWithTheReasonOfTheTemplate) {
  const OpenAiServer test(
      {}, chat_model("{% for m in messages %}{% if m.role == 'tool' and loop.first %}"
                     "{{ raise_exception('no call before') }}{% endif %}"
                     "{% if m.role == 'assistant' and not loop.first and "
                     "loop.previtem.role == 'assistant' %}"
                     "{{ raise_exception('roles alternate') }}{% endif %}{% endfor %}" +
                     kChatTemplate));
  make_session(test);
  const ApiAnswer early = test.post(kChatPath, turn({message("tool", "42")}));
  EXPECT_EQ(early.status, 400);
  EXPECT_EQ(early.error("param"), "messages");
  EXPECT_EQ(early.error("message"),
            "messages cannot begin the session, which is empty: no call before");
  const Json answers = turn({message("assistant", "A"), message("user", "B")});
  ASSERT_EQ(test.post(kChatPath, answers).status, 200);
  const ApiAnswer late = test.post(kChatPath, answers);
  EXPECT_EQ(late.status, 400);
  EXPECT_EQ(late.error("param"), "messages");
  EXPECT_EQ(late.error("message"),
            "messages cannot follow the last answer of the session: roles alternate; send the "
            "whole conversation without session");
  const Json results = test.post(kChatPath, turn({message("tool", "42")})).body;
  EXPECT_EQ(results["usage"]["prompt_tokens"], 10);
}

TEST(ChatSessions, ATemplateWhoseMessagesDependOnEarlierOnesTakesNoSession) {
  const OpenAiServer test({}, chat_model("{% for m in messages %}{{ loop.index }}: {{ m.content }}"
                                         "{{ '\\n' }}{% endfor %}"));
  const ApiAnswer answer = test.post(kChatPath, turn_of_user("HI"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "session");
  EXPECT_THAT(answer.error("message"), HasSubstr("send the whole conversation without session"));
}

TEST(ChatSessions, RefusalsNameTheField) {
  const OpenAiServer test({}, chat_model());
  const ApiAnswer none = test.post(kChatPath, turn_of_user("HI"));
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(none.error("param"), "session");
  make_session(test);
  Json body = turn_of_user("HI");
  body["position"] = 3;
  EXPECT_EQ(test.post(kChatPath, body).status, 409);
  EXPECT_EQ(test.get("/v1/sessions/talk").body["position"], 0);
}

}  // namespace
}  // namespace runnel
