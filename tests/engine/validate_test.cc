#include "engine/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/limits.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

const EngineOptions kLimits = {.samples = 4, .prompt_values = 10, .max_values = 1000};

Spec image_spec() {
  Spec spec = fake_spec(783, true);
  spec.name = "digits";
  spec.vocabulary = 256;
  spec.head = {HeadKind::kMixtureOfLogistics, 256, 10};
  return spec;
}

TEST(Validate, APlainRequestIsFine) {
  EXPECT_TRUE(validate(request_of({1, 2}, 10), fake_spec(), kLimits).ok());
  GenerateRequest defaults;
  defaults.seed = 1;
  EXPECT_TRUE(validate(defaults, image_spec(), kLimits).ok());
}

struct Fault {
  const char* what;
  std::function<void(GenerateRequest&)> make;
  const char* message;
};

TEST(Validate, EachFaultIsNamedWithItsLimit) {
  const std::vector<Fault> faults = {
      {"no samples", [](auto& r) { r.samples = 0; }, "samples is 0; it must be between 1 and 4"},
      {"many samples", [](auto& r) { r.samples = 5; }, "samples is 5; it must be between 1 and 4"},
      {"negative max_values", [](auto& r) { r.max_values = -1; }, "max_values is -1"},
      {"large max_values", [](auto& r) { r.max_values = 1001; }, "between 0 and 1000"},
      {"no max_values", [](auto& r) { r.max_values.reset(); }, "has no last position"},
      {"value below", [](auto& r) { r.prompt = {1, -1}; },
       "prompt[1] is -1; values of model 'fake' are 0 to 99"},
      {"value above", [](auto& r) { r.prompt = {100}; }, "prompt[0] is 100"},
      {"long prompt", [](auto& r) { r.prompt.assign(11, 0); }, "prompt has 11 values; at most 10"},
      {"no prompt", [](auto& r) { r.prompt.clear(); }, "the prompt is empty"},
      {"cold", [](auto& r) { r.sampling.temperature = -1e-8F; },
       "sampling.temperature is -1e-08; it must be between 0 and 100"},
      {"hot", [](auto& r) { r.sampling.temperature = 101; }, "sampling.temperature is 101"},
      {"not a number", [](auto& r) { r.sampling.temperature = NAN; }, "sampling.temperature"},
      {"top_k", [](auto& r) { r.sampling.top_k = -1; },
       "sampling.top_k is -1; it must be between 0 and 100"},
      {"top_p", [](auto& r) { r.sampling.top_p = 1.5F; }, "sampling.top_p is 1.5"},
      {"top_p zero", [](auto& r) { r.sampling.top_p = 0; },
       "sampling.top_p is 0; it must be above 0 and at most 1"},
      {"greedy with a wrong top_p", [](auto& r) { r.sampling = {.top_p = 2, .greedy = true}; },
       "sampling.top_p is 2"},
      {"greedy and not a number", [](auto& r) { r.sampling = {.top_p = NAN, .greedy = true}; },
       "sampling.top_p is nan"},
      {"min_p", [](auto& r) { r.sampling.min_p = -0.5F; }, "sampling.min_p is -0.5"},
      {"many stops", [](auto& r) { r.stop.assign(9, {1}); }, "stop has 9 sequences; at most 8"},
      {"empty stop", [](auto& r) { r.stop = {{}}; }, "empty sequence"},
      {"long stop", [](auto& r) { r.stop = {std::vector<int32_t>(33, 1)}; },
       "stop has 33 values; at most 32"},
      {"strange stop", [](auto& r) { r.stop = {{1, 500}}; }, "stop[1] is 500"},
      {"stop_text without a tokenizer", [](auto& r) { r.tokenizer = nullptr, r.stop_text = {"a"}; },
       "stop_text is set, but model 'fake' has no tokenizer: use stop"},
      {"many stop texts", [](auto& r) { r.stop_text.assign(9, "a"); },
       "stop_text has 9 texts; at most 8"},
      {"empty stop text", [](auto& r) { r.stop_text = {"a", ""}; }, "a text of 0 bytes"},
      {"long stop text", [](auto& r) { r.stop_text = {std::string(257, 'a')}; },
       "stop_text has a text of 257 bytes; each must have 1 to 256"},
      {"top_log_probs", [](auto& r) { r.top_log_probs = 21; },
       "top_log_probs is 21; it must be between 0 and 20"},
      {"keep many", [](auto& r) { r.keep = true, r.samples = 2; }, "only one sample"},
      {"no time", [](auto& r) { r.max_time = Duration(0); }, "max_time must be above 0"},
      {"group", [](auto& r) { r.delivery.max_values = 0; }, "delivery.max_values is 0"},
      {"delay", [](auto& r) { r.delivery.max_delay = std::chrono::hours(1); },
       "delivery.max_delay is 3600000 ms"},
      {"session", [](auto& r) { r.session = "a b"; }, "characters of A-Z a-z 0-9"},
      {"empty session", [](auto& r) { r.session = ""; }, "1 to 128 characters"},
      {"two origins", [](auto& r) { r.session = "a", r.state = "b"; },
       "origin.state cannot be combined with origin.session"},
      {"request_id", [](auto& r) { r.request_id.assign(129, 'x'); },
       "request_id is longer than 128 bytes"},
  };
  for (const Fault& fault : faults) {
    GenerateRequest request = request_of({1, 2}, 10);
    request.tokenizer = Tokenizer::of_bytes();
    fault.make(request);
    const Status status = validate(request, fake_spec(), kLimits);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << fault.what;
    EXPECT_THAT(status.message(), HasSubstr(fault.message)) << fault.what;
  }
}

TEST(Validate, FiltersNeedACategoricalHead) {
  GenerateRequest request = request_of({}, 10);
  EXPECT_TRUE(validate(request, image_spec(), kLimits).ok());
  request.sampling.top_k = 5;
  EXPECT_THAT(validate(request, image_spec(), kLimits).message(),
              HasSubstr("model 'digits' has a mixture of logistics"));
  request.sampling = {.temperature = 0.5F, .greedy = true};
  EXPECT_TRUE(validate(request, image_spec(), kLimits).ok());
}

TEST(Validate, AGreedyRequestAcceptsEveryFilter) {
  GenerateRequest request = request_of({1}, 10);
  request.sampling = {.top_k = 5, .top_p = 0, .min_p = 1, .greedy = true};
  EXPECT_TRUE(validate(request, fake_spec(), kLimits).ok());
  EXPECT_TRUE(validate(request, image_spec(), kLimits).ok());
}

TEST(Validate, NumbersArePrintedAsTheyWereGiven) {
  Penalties penalties;
  penalties.repetition = -1e-8F;
  const auto message = [&] { return validate_penalties(penalties, fake_spec(), 1).message(); };
  EXPECT_EQ(message(),
            "sampling.repetition_penalty is -1e-08; it must be above 0 and at most 1000");
  penalties = {.presence = 2.0000002F};
  EXPECT_EQ(message(), "sampling.presence_penalty is 2.0000002; it must be between -2 and 2");
  penalties = {.logit_bias = {{5, -1e9F}}};
  EXPECT_EQ(message(), "sampling.logit_bias[5] is -1e+09; it must be between -100 and 100");
}

TEST(SetTemperature, TinyTemperaturesAreGreedy) {
  for (const float tiny : {0.0F, -0.0F, 1e-45F, 1e-8F, 0.0009999F}) {
    Sampling sampling;
    set_temperature(tiny, sampling);
    EXPECT_EQ(sampling, Sampling{.greedy = true}) << tiny;
  }
  for (const float kept : {0.001F, 1.0F, 100.0F, 101.0F, -1e-8F, -1.0F}) {
    Sampling sampling;
    set_temperature(kept, sampling);
    EXPECT_EQ(sampling, Sampling{.temperature = kept}) << kept;
  }
  Sampling sampling;
  set_temperature(NAN, sampling);
  EXPECT_TRUE(std::isnan(sampling.temperature)) << "which is refused";
}

TEST(Validate, APromptBeyondTheLastPositionIsOutOfRange) {
  const Spec spec = fake_spec(4);  // room for five values
  EXPECT_TRUE(validate(request_of({1, 2, 3, 4, 5}, 1), spec, kLimits).ok());
  const Status status = validate(request_of({1, 2, 3, 4, 5, 6}, 1), spec, kLimits);
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("a sequence of model 'fake' holds at most 5 values"));
}

TEST(Validate, MessagesUseTheModelNameOfTheRequest) {
  GenerateRequest request = request_of({500}, 10);
  EXPECT_THAT(validate(request, fake_spec(), kLimits).message(),
              HasSubstr("values of model 'fake' are 0 to 99"));
  request.model = "latest";
  EXPECT_THAT(validate(request, fake_spec(), kLimits).message(),
              HasSubstr("values of model 'latest' are 0 to 99"));
  EXPECT_THAT(validate_length(0, 1000, "prompt", {fake_spec(20), "latest"}).message(),
              HasSubstr("a sequence of model 'latest' holds at most "));
}

}  // namespace
}  // namespace runnel
