// POST /v1/chat/completions over real sockets, with a model that writes bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/openai/chat_models.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kRendered = "[U]HI\n[A]";  // capitals, because values are 0 to 99

Json request(int64_t tokens) {
  return {{"messages", {{{"role", "user"}, {"content", "HI"}}}},
          {"max_completion_tokens", tokens},
          {"seed", 7}};
}

Json by_completions(const OpenAiServer& test, const std::string& prompt, int64_t tokens) {
  return test.complete({{"prompt", prompt}, {"max_tokens", tokens}, {"seed", 7}}).body;
}

TEST(Chat, AnAnswerContinuesTheRendering) {
  const OpenAiServer test({}, chat_model());
  const ApiAnswer answer = test.post(kChatPath, request(20));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json expected = by_completions(test, kRendered, 20);
  EXPECT_EQ(answer.body["object"], "chat.completion");
  EXPECT_THAT(answer.body["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(answer.body["model"], "fake");
  ASSERT_EQ(answer.body["choices"].size(), 1U);
  const Json& choice = answer.body["choices"][0];
  EXPECT_EQ(choice["message"], Json({{"role", "assistant"},
                                     {"content", stripped(expected["choices"][0]["text"])},
                                     {"refusal", nullptr},
                                     {"reasoning_content", nullptr}}));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"], Json());
  EXPECT_EQ(answer.body["usage"], Json({{"prompt_tokens", 9},
                                        {"completion_tokens", 20},
                                        {"total_tokens", 29},
                                        {"prompt_tokens_details", {{"cached_tokens", 0}}},
                                        {"completion_tokens_details", {{"reasoning_tokens", 0}}}}));
}

// RWKV models read the value 0 before the first turn.
TEST(Chat, ValuesBeforeAFirstTurnAreRead) {
  ServedModel model = chat_model();
  model.chat =
      ChatFormat::make({.source = kChatTemplate, .name = "t", .begin = {0}}, model.tokenizer)
          .value();
  const OpenAiServer test({}, std::move(model));
  Json body = request(5);
  body["return_token_ids"] = true;
  const Json answer = test.post(kChatPath, body).body;
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 1 + kRendered.size());
  std::vector<int> values = {0};
  values.insert(values.end(), kRendered.begin(), kRendered.end());
  const Json expected =
      test.complete(
              {{"prompt", values}, {"max_tokens", 5}, {"seed", 7}, {"return_token_ids", true}})
          .body;
  EXPECT_EQ(answer["choices"][0]["token_ids"], expected["choices"][0]["token_ids"]);
}

TEST(Chat, AConversationMayBeLongerThanAText) {
  const OpenAiServer test({}, chat_model());
  const std::string text(50'000, 'A');  // longer than limits.text_bytes, 1000
  Json body = request(3);
  body["messages"][0]["content"] = text;
  EXPECT_EQ(test.post(kChatPath, body).body["usage"]["prompt_tokens"], 50'007);
  EXPECT_EQ(test.complete({{"prompt", text}}).status, 400);
}

TEST(Chat, MemoryForRenderingIsReservedFirstAndReleased) {
  constexpr int64_t kCallBytes = 64 << 20;
  OpenAiServer test(OpenAiServer::Options{.call_bytes = kCallBytes}, chat_model());
  EXPECT_EQ(test.post(kChatPath, request(3)).status, 200);
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
  {
    const auto others = test.state.memory.take(kCallBytes / 2);  // rendering needs more than half
    const ApiAnswer refused = test.post(kChatPath, request(3));
    EXPECT_EQ(refused.status, 429);
    EXPECT_EQ(refused.error("code"), "call_bytes");
  }
  EXPECT_EQ(test.post(kChatPath, request(3)).status, 200);
}

TEST(Chat, AResentConversationReadsOnlyItsNewPart) {
  // The template writes earlier answers without the [THINK] of the generation prompt.
  const std::string source =
      "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content }}{{ '\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}[A][THINK]{% endif %}";
  const auto kept = [&source](int64_t bytes) {
    EngineOptions options;
    options.prefix_cache_bytes = bytes;
    ServedModel model = served_fake("fake", {}, options, kTestLimits, byte_spec());
    model.tokenizer = Tokenizer::of_bytes();
    model.chat = ChatFormat::make({.source = source, .name = "t"}, model.tokenizer).value();
    return model;
  };
  const OpenAiServer warm({}, kept(1 << 20)), cold({}, kept(0));
  Json body = request(6);
  body["messages"] = Json::array();
  int64_t read = 0;
  for (int turn = 0; turn < 4; ++turn) {
    body["messages"].push_back({{"role", "user"}, {"content", "WHAT IS IT THAT RUNS?"}});
    const Json answer = warm.post(kChatPath, body).body, other = cold.post(kChatPath, body).body;
    EXPECT_EQ(answer["choices"], other["choices"]) << turn;
    const Json& usage = answer["usage"];
    EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], read) << turn;
    EXPECT_EQ(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0) << turn;
    // The token before "[A][THINK]" could merge with the text after it.
    read = usage["prompt_tokens"].get<int64_t>() - 10 - 1;
    body["messages"].push_back({{"role", "assistant"}, {"content", "!"}});
  }
}

TEST(Chat, AStreamIsTheWholeAnswerInPieces) {
  const OpenAiServer test({}, chat_model());
  Json body = request(60);
  body["n"] = 2;
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  body["return_token_ids"] = true;
  const Json whole = test.post(kChatPath, body).body;
  body["stream_options"] = {{"include_usage", true}};
  const std::vector<std::string> events = test.stream(body, kChatPath);
  ASSERT_GE(events.size(), 8U);  // role, delta and end of each choice, usage, [DONE]
  EXPECT_EQ(events.back(), "[DONE]");
  const Json last = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["choices"], Json::array());
  EXPECT_EQ(last["usage"], whole["usage"]);
  for (int i = 0; i < 2; ++i) {
    std::string content;
    std::vector<Json> deltas;
    Json logprobs = Json::array(), ids = Json::array(), end;
    for (size_t at = 0; at + 2 < events.size(); ++at) {
      const Json chunk = Json::parse(events[at]);
      EXPECT_EQ(chunk["object"], "chat.completion.chunk");
      EXPECT_EQ(chunk["usage"], Json());
      const Json& piece = chunk["choices"][0];
      if (piece["index"] != i) continue;
      EXPECT_TRUE(end.is_null()) << "nothing follows the end";
      deltas.push_back(piece["delta"]);
      end = piece["finish_reason"];
      content += piece["delta"].value("content", "");
      for (const Json& entry : piece["logprobs"]["content"]) logprobs.push_back(entry);
      for (const Json& id : piece["token_ids"]) ids.push_back(id);
    }
    EXPECT_EQ(deltas.front(), Json({{"role", "assistant"}, {"content", ""}}));
    EXPECT_EQ(deltas.back(), Json::object());
    const Json& choice = whole["choices"][i];
    EXPECT_EQ(Json(content), choice["message"]["content"]);
    EXPECT_EQ(logprobs, choice["logprobs"]["content"]);
    EXPECT_EQ(ids, choice["token_ids"]);
    EXPECT_EQ(end, choice["finish_reason"]);
    EXPECT_EQ(logprobs.size(), 60U);
  }
}

TEST(Chat, LogProbsNameTokensWithTheirBytes) {
  const OpenAiServer test({}, chat_model());
  Json body = request(3);
  body["logprobs"] = true;
  body["top_logprobs"] = 1;
  const Json choice = test.post(kChatPath, body).body["choices"][0];
  ASSERT_EQ(choice["logprobs"]["content"].size(), 3U);
  for (const Json& entry : choice["logprobs"]["content"]) {
    const std::string token = entry["token"];
    EXPECT_EQ(entry["bytes"], Json::array({static_cast<unsigned char>(token[0])}));
    EXPECT_LE(entry["logprob"], 0);
    EXPECT_LE(entry["top_logprobs"].size(), 1U);
  }
  body["logprobs"] = false;
  body.erase("top_logprobs");
  EXPECT_EQ(test.post(kChatPath, body).body["choices"][0]["logprobs"], Json());
}

TEST(Chat, ThinkingIsSeparateIfThePromptEndsInIt) {
  const OpenAiServer test({}, chat_model(kChatTemplate + "<think>\n", tokenizer_of("x")));
  const Json answer = test.post(kChatPath, request(20)).body;
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["content"], "");
  EXPECT_EQ(message["reasoning_content"], std::string(20, 'x'));
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 20);
  std::string streamed;
  for (const std::string& event : test.stream(request(20), kChatPath)) {
    if (event == "[DONE]") continue;
    streamed += Json::parse(event)["choices"][0]["delta"].value("reasoning_content", "");
  }
  EXPECT_EQ(Json(streamed), message["reasoning_content"]);
}

TEST(Chat, TokensOfThinkingAreCounted) {
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of("<think>a</think>b")));
  const Json answer = test.post(kChatPath, request(2)).body;
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "a");
  EXPECT_EQ(message["content"], "b<think>a</think>b");
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
}

TEST(Chat, CallsOfToolsAreSeparate) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"z": 1, "a": 2}}</tool_call>)";
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(call)));
  Json body = request(2);
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const Json choice = test.post(kChatPath, body).body["choices"][0];
  EXPECT_EQ(choice["message"]["content"], Json());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2U);
  const Json& made = choice["message"]["tool_calls"][0];
  EXPECT_THAT(made["id"].get<std::string>(), StartsWith("call_"));
  EXPECT_EQ(made["id"].get<std::string>().size(), 29U);
  EXPECT_EQ(made["type"], "function");
  EXPECT_EQ(made["function"], Json({{"name", "f"}, {"arguments", R"({"z":1,"a":2})"}}));
  body["parallel_tool_calls"] = false;
  const Json one = test.post(kChatPath, body).body["choices"][0];
  EXPECT_EQ(one["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(one["finish_reason"], "tool_calls");
  std::vector<Json> deltas;
  for (const std::string& event : test.stream(body, kChatPath)) {
    if (event != "[DONE]") deltas.push_back(Json::parse(event)["choices"][0]["delta"]);
  }
  ASSERT_EQ(deltas.size(), 4U);
  EXPECT_EQ(deltas[1]["tool_calls"][0]["function"], Json({{"name", "f"}, {"arguments", ""}}));
  EXPECT_EQ(deltas[2]["tool_calls"][0]["function"], Json({{"arguments", R"({"z":1,"a":2})"}}));
  body["tool_choice"] = "none";
  EXPECT_EQ(test.post(kChatPath, body).body["choices"][0]["message"]["content"], call + call);
}

TEST(Chat, ASampleFinishesWithItsOnlyCall) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(call)));
  constexpr int64_t kMost = 60'000;  // far more than a stream buffers for a slow reader
  Json body = request(kMost);
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  body["parallel_tool_calls"] = false;
  body["n"] = 2;
  const Json answer = test.post(kChatPath, body).body;
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["message"]["tool_calls"].size(), 1U);
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
  }
  EXPECT_LT(answer["usage"]["completion_tokens"], kMost);
}

TEST(Chat, ToolsAreRefusedWhereTheTemplateWritesNoCalls) {
  const OpenAiServer test({}, chat_model("{% for m in messages %}{{ m.content }}{% endfor %}"));
  Json body = request(2);
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const ApiAnswer answer = test.post(kChatPath, body);
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "tools");
}

TEST(Chat, TheTextBeforeTheNextUserEndsAnAnswer) {
  // Each value is a letter and then the end of a turn in kChatTemplate.
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of("x\n[U]")));
  Json body = request(9);
  const Json choice = test.post(kChatPath, body).body["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "x");
  EXPECT_EQ(choice["finish_reason"], "stop");
  body["ignore_eos"] = true;
  EXPECT_EQ(test.post(kChatPath, body).body["choices"][0]["finish_reason"], "length");
}

// Other values with the same text do not end the turn.
TEST(Chat, TheTokenThatEndsATurnIsFoundByItsValue) {
  const std::string source =
      "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}[A]{% endif %}";
  constexpr int32_t kEnd = 42;
  const OpenAiServer test(
      {}, chat_model(source, tokenizer_of("<|end|>", {{.text = "<|end|>", .value = kEnd}})));
  Json body = request(3000);
  body["ignore_eos"] = true;
  body["return_token_ids"] = true;
  const std::vector<int32_t> ids = test.post(kChatPath, body).body["choices"][0]["token_ids"];
  const auto first = static_cast<size_t>(std::ranges::find(ids, kEnd) - ids.begin());
  ASSERT_GT(first, 1U);
  ASSERT_LT(first, ids.size());
  body["ignore_eos"] = false;
  const Json choice = test.post(kChatPath, body).body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["token_ids"].size(), first + 1);
  EXPECT_EQ(choice["message"]["content"].get<std::string>().size(), 7 * first);
}

TEST(Chat, AFinalMessageIsContinued) {
  const OpenAiServer test({}, chat_model());
  Json body = request(10);
  body["messages"].push_back({{"role", "assistant"}, {"content", "WELL, "}});
  body["continue_final_message"] = true;
  const Json expected = by_completions(test, kRendered + "WELL, ", 10);
  const Json answer = test.post(kChatPath, body).body;
  EXPECT_EQ(answer["choices"][0]["message"]["content"], expected["choices"][0]["text"]);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 15);
}

// Clients join the two texts, and most words begin with a space.
TEST(Chat, AContinuedMessageKeepsTheSpaceBeforeItsNextWord) {
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(" x")));
  Json body = request(2);
  const auto content = [&] {
    return test.post(kChatPath, body).body["choices"][0]["message"]["content"];
  };
  EXPECT_EQ(content(), "x x");
  body["messages"].push_back({{"role", "assistant"}, {"content", "WELL,"}});
  body["continue_final_message"] = true;
  EXPECT_EQ(content(), " x x");
  body["messages"][1]["content"] = "";
  EXPECT_EQ(content(), "x x") << "the message is empty, so the answer begins it";
}

TEST(Chat, PartsAreJoinedUnlessTheTemplateSupportsThem) {
  const std::string takes =
      "{% for m in messages %}[{{ m.role[0] | upper }}]{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{{ '\\n' }}{% endfor "
      "%}"
      "{% if add_generation_prompt %}[A]{% endif %}";
  Json body = request(1);
  body["messages"][0]["content"] = {{{"type", "text"}, {"text", "ONE"}},
                                    {{"type", "text"}, {"text", "TWO"}}};
  for (const auto& [source, prompt] :
       {std::pair{kChatTemplate, "[U]ONE\nTWO\n[A]"}, std::pair{takes, "[U](ONE)(TWO)\n[A]"}}) {
    const OpenAiServer test({}, chat_model(source));
    const Json answer = test.post(kChatPath, body).body;
    EXPECT_EQ(answer["usage"]["prompt_tokens"], std::string_view(prompt).size());
    body["messages"].push_back(
        {{"role", "assistant"}, {"content", body["messages"][0]["content"]}});
    body["continue_final_message"] = true;
    const Json more = test.post(kChatPath, body).body;
    EXPECT_EQ(more["usage"]["prompt_tokens"],
              2 * std::string_view(prompt).size() - 7 - (source == takes ? 1 : 0));
    body["messages"].erase(1);
    body.erase("continue_final_message");
  }
}

TEST(Chat, AStopTextEndsTheContent) {
  const OpenAiServer test({}, chat_model());
  const std::string all = by_completions(test, kRendered, 40)["choices"][0]["text"];
  Json body = request(40);
  const std::string stop = all.substr(20, 3);
  body["stop"] = stop;
  const Json choice = test.post(kChatPath, body).body["choices"][0];
  EXPECT_EQ(choice["message"]["content"], stripped(all.substr(0, all.find(stop))));
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(Chat, AModelWithoutATemplateIs404AndSaysWhatToDo) {
  ServedModel model = served_fake("fake");
  model.no_chat = "it has no template";
  const OpenAiServer test({}, std::move(model));
  const ApiAnswer answer = test.post(kChatPath, request(5));
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.error("code"), "");
  EXPECT_THAT(answer.error("message"), HasSubstr("it has no template"));
  EXPECT_THAT(answer.error("message"), HasSubstr("send the prompt as a text"));
}

TEST(Chat, RefusalsNameTheField) {
  const OpenAiServer test({},
                          chat_model(kChatTemplate + "{% if messages[0].content == 'king' %}"
                                                     "{{ raise_exception('roles must alternate') }}"
                                                     "{% endif %}"));
  Json body = request(5);
  body["messages"][0]["content"] = "king";
  const ApiAnswer raised = test.post(kChatPath, body);
  EXPECT_EQ(raised.status, 400);
  EXPECT_EQ(raised.error("param"), "messages");
  EXPECT_EQ(raised.error("message"), "messages: roles must alternate");
  body = request(5);
  body["messages"][0]["role"] = "king";
  EXPECT_EQ(test.post(kChatPath, body).error("param"), "messages[0].role");
  body = request(5);
  body["model"] = "other";
  EXPECT_EQ(test.post(kChatPath, body).error("code"), "model_not_found");
  EXPECT_EQ(test.post(kChatPath, Json::array()).status, 400);
}

TEST(Chat, ARefusedLengthIsNamedAsInTheRequest) {
  const OpenAiServer test({}, chat_model());
  Json body = request(int64_t{1} << 39);
  EXPECT_EQ(test.post(kChatPath, body).error("param"), "max_completion_tokens");
  body["max_tokens"] = body["max_completion_tokens"];
  body.erase("max_completion_tokens");
  EXPECT_EQ(test.post(kChatPath, body).error("param"), "max_tokens");
}

TEST(Chat, TheDefaultLengthOfAnAnswerHasALimitOfItsOwn) {
  OpenAiServer test({}, chat_model());
  test.state.chat_values = 11;
  Json body = request(1);
  body.erase("max_completion_tokens");
  EXPECT_EQ(test.post(kChatPath, body).body["usage"]["completion_tokens"], 11);
}

}  // namespace
}  // namespace runnel
