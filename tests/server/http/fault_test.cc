#include "server/http/fault.h"

#include <gmock/gmock.h>

#include <string_view>
#include <vector>

#include "base/fields.h"
#include "base/json.h"
#include "engine/validate.h"
#include "server/openai/words.h"
#include "server/rest/words.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view (*kDoors[])(std::string_view) = {completion_word, chat_word,
                                                            response_word, image_word, rest_word};

TEST(Fault, TheMessageAndTheParamUseTheFieldNameOfTheDoor) {
  for (const auto word_of : kDoors) {
    for (const std::string_view field : fields::kAll) {
      const Fault fault = fault_of(invalid_argument(place_of(field) + " is wrong"), word_of);
      const std::string_view word = word_of(field);
      EXPECT_EQ(fault.param, word);
      EXPECT_EQ(fault.status.message(), std::string(word.empty() ? field : word) + " is wrong");
    }
  }
}

TEST(Fault, EveryPathHasFieldNamesOfItsOwn) {
  const auto words_of = [](std::string_view field) {
    std::vector<std::string_view> words;
    for (const auto word_of : kDoors) words.push_back(word_of(field));
    return words;
  };
  EXPECT_THAT(words_of(fields::kMaxValues),
              ElementsAre("max_tokens", "max_completion_tokens", "max_output_tokens", "size", ""));
  EXPECT_THAT(words_of(fields::kPrompt), ElementsAre("prompt", "messages", "input", "prompt", ""));
  EXPECT_THAT(words_of(fields::kSamples), ElementsAre("n", "n", "", "n", ""));
  EXPECT_THAT(words_of(fields::kSession), ElementsAre("session", "session", "", "", ""));
  EXPECT_THAT(words_of(fields::kTools), ElementsAre("", "tools", "tools", "", ""));
  EXPECT_THAT(words_of(fields::kToken),
              ElementsAre("state_token", "state_token", "state_token", "", ""));
  EXPECT_THAT(words_of(fields::kCount), ElementsAre("", "", "", "", "count"));
  EXPECT_THAT(words_of(fields::kPageSize), ElementsAre("", "", "", "", "limit"));
  EXPECT_THAT(words_of(fields::kAllowInexact), ElementsAre("", "", "", "", "allow_inexact"));
}

TEST(Fault, APromptThatDoesNotFitHasACodeOfItsOwn) {
  const auto code_of = [](const char* param) {
    const Fault fault{Status(Code::kOutOfRange, "too long"), param};
    return Json::parse(error_json(fault))["error"]["code"];
  };
  for (const char* const param : {"prompt", "messages", "input"}) {
    EXPECT_EQ(code_of(param), "context_length_exceeded") << param;
  }
  EXPECT_TRUE(code_of("position").is_null()) << "of a rewind";
}

TEST(Fault, AHintOfAnotherDoorIsLeftOut) {
  Spec spec;
  spec.name = "digits";
  spec.vocabulary = 10;
  spec.begin = Begin{};
  GenerateRequest request;
  request.max_values = 1;
  request.stop_text = {"x"};
  const Fault fault = fault_of(validate(request, spec, {}), completion_word);
  EXPECT_EQ(fault.status.message(), "stop is set, but model 'digits' has no tokenizer");
  EXPECT_EQ(fault.param, "stop");
}

TEST(Fault, KeepsTheRetryTimeAndTheReason) {
  Status status(Code::kResourceExhausted, "full");
  status.with_retry_after(std::chrono::milliseconds(250)).with_reason("sessions");
  const Fault fault = fault_of(status, rest_word);
  EXPECT_EQ(fault.status, status);
  EXPECT_TRUE(fault_of(Status(), rest_word).ok());
}

}  // namespace
}  // namespace runnel
