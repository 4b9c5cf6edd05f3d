#include "server/http/fault.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "base/json.h"
#include "engine/fields.h"
#include "engine/validate.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Canonical names that are no words of the HTTP doors.
std::set<std::string> foreign_words() {
  std::set<std::string> words, own;
  for (const std::string_view field : fields::kAll) own.emplace(http_word(field));
  for (const std::string_view field : fields::kAll) {
    if (!own.contains(std::string(field))) words.emplace(field);
  }
  words.erase("text");    // an English word
  words.erase("values");  // likewise
  return words;
}

// One request that is refused for each check of the engine of a field that the HTTP doors have.
std::vector<Status> every_refusal() {
  Spec spec;
  spec.name = "m";
  spec.vocabulary = 10;
  spec.begin = Begin{};
  const EngineOptions options;
  std::vector<Status> refusals;
  const auto refuse = [&](const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest request;
    request.max_values = 1;
    change(request);
    refusals.push_back(validate(request, spec, options));
    EXPECT_FALSE(refusals.back().ok()) << "request " << refusals.size();
  };
  using R = GenerateRequest;
  refuse([](R& r) { r.samples = 0; });
  refuse([](R& r) { r.max_values = -1; });
  refuse([](R& r) { r.max_values.reset(); });
  refuse([](R& r) { r.top_log_probs = -1; });
  refuse([](R& r) { r.samples = 2, r.keep = true; });
  refuse([](R& r) { r.max_queue_time = Duration(-1); });
  refuse([](R& r) { r.prompt = {10}; });
  refuse([](R& r) { r.sampling.temperature = -1; });
  refuse([](R& r) { r.sampling.top_k = -1; });
  refuse([](R& r) { r.sampling.top_p = 2; });
  refuse([](R& r) { r.sampling.top_p = 0; });
  refuse([](R& r) { r.sampling.min_p = -1; });
  refuse([](R& r) { r.stop_text = {"x"}; });
  refuse([](R& r) { r.session = "a b"; });
  for (const Penalties& penalties :
       {Penalties{.repetition = 0}, Penalties{.frequency = 3}, Penalties{.presence = 3},
        Penalties{.logit_bias = {{10, 0}}}, Penalties{.logit_bias = {{1, 200}}}}) {
    refusals.push_back(validate_penalties(penalties, spec, DeviceKind::kCpu, 1));
    refusals.push_back(validate_penalties(penalties, spec, DeviceKind::kCuda, 0));
  }
  return refusals;
}

TEST(Fault, NoMessageHasAnotherDoorsWord) {
  for (const Status& status : every_refusal()) {
    const Fault fault = fault_of(status);
    for (const std::string& word : foreign_words()) {
      EXPECT_THAT(fault.status.message(), Not(HasSubstr(word)));
    }
    EXPECT_FALSE(status.field().empty()) << status.message();
    EXPECT_EQ(fault.param, http_word(status.field()));
  }
}

TEST(Fault, EveryFieldOfTheDoorStandsInItsPlace) {
  for (const std::string_view field : fields::kAll) {
    const Fault fault = fault_of(invalid_argument(place_of(field) + " is wrong"));
    const std::string_view word = http_word(field);
    EXPECT_EQ(fault.param, word);
    EXPECT_EQ(fault.status.message(), std::string(word.empty() ? field : word) + " is wrong");
  }
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
  const Fault fault = fault_of(validate(request, spec, {}));
  EXPECT_EQ(fault.status.message(), "stop is set, but model 'digits' has no tokenizer");
  EXPECT_EQ(fault.param, "stop");
}

TEST(Fault, KeepsWhatElseTheStatusSays) {
  Status status(Code::kResourceExhausted, "full");
  status.with_retry_after(std::chrono::milliseconds(250)).with_reason("sessions");
  const Fault fault = fault_of(status);
  EXPECT_EQ(fault.status, status);
  EXPECT_TRUE(fault_of(Status()).ok());
}

}  // namespace
}  // namespace runnel
