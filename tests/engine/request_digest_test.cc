#include "engine/request_digest.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/engine/harness.h"

namespace runnel {
namespace {

TEST(RequestDigest, FieldsThatDoNotChangeTheAnswerDoNotChangeTheDigest) {
  GenerateRequest request = request_of({1, 2, 3}, 10);
  const RequestDigest digest = digest_of(request);
  request.prompt.reserve(1000);
  request.tokenizer = number_tokenizer();
  request.held_bytes = 1000;
  request.model = "latest";              // one model may have several names
  request.max_queue_time = Duration(1);  // the wait does not change the values
  EXPECT_EQ(digest_of(request), digest);
}

TEST(RequestDigest, EveryFieldThatChangesTheAnswerChangesTheDigest) {
  const std::vector<int32_t> two = {1, 0};
  const std::vector<std::vector<int32_t>> one_stop = {{1, 2}};
  const std::vector<std::vector<int32_t>> two_stops = {{1}, {2}};
  const std::vector<std::string> two_texts = {"a", "b"};
  const std::vector<std::function<void(GenerateRequest&)>> changes = {
      [](auto&) {},
      [](auto& r) { r.caller.name = "me"; },
      [](auto& r) { r.session = ""; },
      [](auto& r) { r.session = "a"; },
      [](auto& r) { r.prompt = {1}; },
      [&](auto& r) { r.prompt = two; },
      [](auto& r) { r.turn = NextTurn(); },
      [](auto& r) { r.turn = NextTurn{.at_start = invalid_argument("a")}; },
      [](auto& r) { r.turn = NextTurn{.later = invalid_argument("a")}; },
      [](auto& r) { r.turn = NextTurn{.values = {1}}; },
      [](auto& r) { r.turn = NextTurn{.end_of_turn = 0}; },
      [](auto& r) { r.turn = NextTurn{.end = 1}; },
      [](auto& r) { r.turn = NextTurn{.stop_text = "a"}; },
      [](auto& r) { r.turn = NextTurn{.after_stop = {1}}; },
      [](auto& r) { r.samples = 2; },
      [](auto& r) { r.max_values = 0; },
      [](auto& r) { r.max_time = Duration(0); },
      [](auto& r) { r.seed = 0; },
      [](auto& r) { r.sampling.temperature = 0.5F; },
      [](auto& r) { r.sampling.top_k = 1; },
      [](auto& r) { r.sampling.top_p = 0.5F; },
      [](auto& r) { r.sampling.min_p = 0.5F; },
      [](auto& r) { r.sampling.greedy = true; },
      [](auto& r) { r.penalties = std::make_shared<Penalties>(); },
      [](auto& r) { r.penalties = std::make_shared<Penalties>(Penalties{.repetition = 2}); },
      [](auto& r) { r.penalties = std::make_shared<Penalties>(Penalties{.frequency = 2}); },
      [](auto& r) { r.penalties = std::make_shared<Penalties>(Penalties{.presence = 2}); },
      [](auto& r) { r.penalties = std::make_shared<Penalties>(Penalties{.logit_bias = {{1, 2}}}); },
      [&](auto& r) { r.stop = one_stop; },
      [&](auto& r) { r.stop = two_stops; },
      [](auto& r) { r.stop_text = {"ab"}; },
      [&](auto& r) { r.stop_text = two_texts; },
      [](auto& r) { r.end_of_turn = 0; },
      [](auto& r) { r.ignore_eos = true; },
      [](auto& r) { r.top_log_probs = 1; },
      [](auto& r) { r.keep = false; },
      [](auto& r) { r.keep = true; },
      [](auto& r) { r.expected_position = 0; },
      [](auto& r) { r.request_id = "me"; },
      [](auto& r) { r.delivery.max_values = 1; },
      [](auto& r) { r.delivery.max_delay = Duration(1); },
  };
  std::set<RequestDigest> digests;
  for (const auto& change : changes) {
    GenerateRequest request;
    change(request);
    EXPECT_TRUE(digests.insert(digest_of(request)).second) << digests.size();
  }
}

}  // namespace
}  // namespace runnel
