#include "server/openai/completion_json.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/server/openai/chat_models.h"

namespace runnel {
namespace {

// Several tokens of a vocabulary can have the same text. Clients read the map as a distribution, so
// it must have the log-probability of the most likely one.
TEST(CompletionFormat, OfTokensWithTheSameTextTheMostLikelyIsReported) {
  const CompletionFormat format(
      {.model = "m", .numerics = "n", .tokenizer = tokenizer_of("x"), .logprobs = 3});
  const ChoicePart part = {
      .text = "x", .tokens = {{.value = 5, .log_prob = -2, .top = {{7, -0.5}, {5, -2}, {9, -3}}}}};
  const Json logprobs = Json::parse(format.choice(0, part, nullptr))["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"], Json({-2}));
  EXPECT_EQ(logprobs["top_logprobs"], Json::parse(R"([{"x": -0.5}])"));
}

}  // namespace
}  // namespace runnel
