#include "models/check_forward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace runnel {
namespace {

constexpr int kValues = 8;
constexpr auto kAtMost = std::chrono::minutes(1);
constexpr float kLeast = -1e6F;  // far below ln of the smallest positive fp32 number

Status overflows(const std::string& what) {
  return invalid_argument("the forward pass does not work with these weights: " + what +
                          "; expected numbers that fp32 can hold, as of a trained model");
}

// Values from both ends and the middle of the vocabulary.
std::vector<int32_t> some_values(const Spec& spec) {
  const int64_t end = spec.max_length() == 0 ? kValues : spec.max_length();
  std::vector<int32_t> values(std::min<int64_t>(kValues, end));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int32_t>(i * static_cast<size_t>(spec.vocabulary - 1) / (kValues - 1));
  }
  return values;
}

// Scores the values, and appends their log-probabilities.
Status score(Model& model, std::span<const int32_t> values, std::vector<Emitted>& scores) {
  const Row row = {0, values, Want::kScores};
  const Ticket ticket = model.submit({&row, 1}, 1);
  const TimePoint end = std::chrono::steady_clock::now() + kAtMost;
  for (;;) {
    const Result<bool> done = model.collect(ticket, scores);
    if (!done.ok()) return done.status();
    if (*done) return {};
    if (std::chrono::steady_clock::now() > end) {
      return Status(Code::kInternal, "the device did not answer within a minute");
    }
    std::this_thread::yield();
  }
}

// The first part of the state in slot 0, after this number of inputs, that has a number that is not
// finite, or "".
std::string part_that_overflows(Model& model, int64_t inputs) {
  std::vector<std::byte> state(static_cast<size_t>(model.layout().live_bytes(inputs)));
  model.read(0, 0, state);
  for (const StatePart& part : model.layout().parts) {
    if (part.type != DType::kF32) continue;
    const int64_t entries = part.paged ? StateLayout::pages_of(inputs) : part.shape[0];
    for (int64_t entry = 0; entry < entries; ++entry) {
      const std::byte* from = state.data() + part.offset + entry * part.stride;
      for (int64_t at = 0; at < part.entry_bytes(); at += sizeof(float)) {
        float number = 0;
        std::memcpy(&number, from + at, sizeof(number));
        if (!std::isfinite(number)) return part.name;
      }
    }
  }
  return "";
}

}  // namespace

Status check_forward(Model& model) {
  const std::vector<int32_t> values = some_values(model.spec());
  Control first;
  first.pending = values[0];
  model.set(0, first, true);
  const std::span<const int32_t> scored = std::span(values).subspan(1);
  const auto most = static_cast<size_t>(model.limits().values);  // of one submit
  std::vector<Emitted> scores;
  for (size_t at = 0; at < scored.size(); at += most) {
    const auto piece = scored.subspan(at, std::min(most, scored.size() - at));
    if (Status s = score(model, piece, scores); !s.ok()) return s;
  }
  for (size_t i = 0; i < scored.size(); ++i) {
    const float log_prob = scores.at(i).log_prob;
    if (std::isfinite(log_prob) && log_prob > kLeast) continue;
    return overflows("the log-probability of value " + std::to_string(scored[i]) + " at position " +
                     std::to_string(i + 1) + " is " + std::to_string(log_prob));
  }
  const int64_t inputs = std::ssize(scored);
  const std::string part = part_that_overflows(model, inputs);
  if (!part.empty()) {
    return overflows("the state's part '" + part + "' overflows after " + std::to_string(inputs) +
                     " values");
  }
  return {};
}

}  // namespace runnel
