// Echoes of POST /v1/completions: texts that begin with the prompt, and their memory.

#include <gtest/gtest.h>

#include "tests/engine/fake_model.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

Json echo_request(int64_t tokens) {
  return {{"model", "fake"}, {"max_tokens", tokens}, {"seed", 7}};
}

TEST(Completions, EchoBeginsWithThePrompt) {
  const OpenAiServer test;
  Json body = echo_request(4);
  body["echo"] = true;
  body["prompt"] = "ab";
  const std::string whole = test.complete(body).body["choices"][0]["text"];
  EXPECT_EQ(whole, "ab" + bytes_of(expected_values({'a', 'b'}, 4)));
  body["max_tokens"] = 0;
  const Json none = test.complete(body).body;
  EXPECT_EQ(none["choices"][0]["text"], "ab");
  EXPECT_EQ(none["usage"]["completion_tokens"], 0);
}

// Evaluation programs score texts this way. They read each prompt token's log-probability, and
// whether the token is the most likely one. They sample at most one more token.
TEST(Completions, AnEchoHasTheLogProbsOfThePrompt) {
  const OpenAiServer test;
  Json body = echo_request(0);
  body["echo"] = true;
  body["logprobs"] = 2;
  body["n"] = 2;
  const std::vector<std::vector<int32_t>> prompts = {{3, 1, 4, 1, 5}, {9}};
  body["prompt"] = prompts;
  for (const size_t more : {0, 1, 3}) {
    body["max_tokens"] = more;
    const ApiAnswer answer = test.complete(body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    for (size_t i = 0; i < 4; ++i) {
      const Json& choice = answer.body["choices"][i];
      std::vector<int32_t> known = prompts[i / 2];
      const size_t given = known.size();
      for (const int32_t value : expected_values(known, static_cast<int>(more), i % 2)) {
        known.push_back(value);
      }
      EXPECT_EQ(choice["text"], bytes_of(known));
      const Json& logprobs = choice["logprobs"];
      ASSERT_EQ(logprobs["tokens"].size(), known.size());
      EXPECT_EQ(logprobs["token_logprobs"][0], Json()) << "nothing predicts it";
      EXPECT_EQ(logprobs["top_logprobs"][0], Json());
      for (size_t j = 0; j < known.size(); ++j) {
        EXPECT_EQ(logprobs["text_offset"][j], j);
        if (j == 0) continue;
        EXPECT_FLOAT_EQ(logprobs["token_logprobs"][j], FakeModel::expected_log_prob(known, j));
        if (j >= given) continue;
        ASSERT_EQ(logprobs["top_logprobs"][j].size(), 2U);
        for (const Json& likely : logprobs["top_logprobs"][j]) EXPECT_LE(-20, likely.get<float>());
      }
    }
  }
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
}

// A tokenizer that puts a space before a text, and whose decoder drops it.
std::shared_ptr<const Tokenizer> spacing_tokenizer() {
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(std::string(1, static_cast<char>(byte)), byte % 90);
  }
  tokens.emplace_back(" a", 95);
  std::vector<std::string> texts(100, "x");
  texts[95] = " a";
  return std::make_shared<const Tokenizer>(TokenizerParts{.words = {put_space_before},
                                                          .model = ByteTrie(tokens),
                                                          .bytes = std::move(texts),
                                                          .drops_first_space = true});
}

TEST(Completions, AnEchoLacksTheSpaceThatTheTokenizerPutsBeforeIt) {
  ServedModel model = served_fake("fake");
  model.tokenizer = spacing_tokenizer();
  const OpenAiServer test({}, std::move(model));
  EXPECT_EQ(test.post("/tokenize", {{"prompt", "a"}}).body["tokens"], Json({95}));
  EXPECT_EQ(test.post("/detokenize", {{"tokens", {95, 95}}}).body["prompt"], "a a");
  Json body = echo_request(2);
  body["echo"] = true;
  for (const Json& prompt : {Json("a"), Json({95})}) {
    body["prompt"] = prompt;
    body.erase("logprobs");
    const std::string plain = test.complete(body).body["choices"][0]["text"];
    EXPECT_EQ(plain.substr(0, 1), "a") << prompt;
    body["logprobs"] = 0;
    const Json scored = test.complete(body).body["choices"][0];
    EXPECT_EQ(scored["text"], plain) << prompt;
    EXPECT_EQ(scored["logprobs"]["text_offset"][1], 1) << prompt;
  }
}

// The engine would refuse this number of choices, but only after every choice has its echo.
TEST(Completions, EchoesAreCountedBeforeTheyAreMade) {
  const OpenAiServer test(OpenAiServer::Options{.call_bytes = 7 << 20});
  Json many = echo_request(5);
  many["prompt"] = std::vector<int32_t>(30000, 1);
  many["n"] = 200;
  EXPECT_EQ(test.complete(many).error("param"), "n");
  many["echo"] = true;
  EXPECT_EQ(test.complete(many).error("code"), "call_bytes");
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
  // Each byte that is not part of a character becomes a character of three bytes.
  many["prompt"] = std::vector<int32_t>(15000, 255);
  many["n"] = 60;
  EXPECT_EQ(test.complete(many).error("code"), "call_bytes");
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

TEST(Completions, TheEventsOfEchoesAreCountedBeforeTheyAreMade) {
  const OpenAiServer test(OpenAiServer::Options{.call_bytes = 5'000'000});
  Json body = echo_request(0);
  body["prompt"] = std::vector<int32_t>(20000, 1);  // each is escaped as six bytes
  body["n"] = 8;
  body["echo"] = true;
  EXPECT_EQ(test.complete(body).status, 200) << "as a whole it fits";
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
  body["stream"] = true;
  const ApiAnswer refused = test.complete(body);
  ASSERT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.error("code"), "call_bytes");
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

}  // namespace
}  // namespace runnel
