#include "models/check_forward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

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

Result<float> score(Model& model, int32_t value) {
  const Row row = {0, {&value, 1}, Want::kScores};
  std::vector<Emitted> emitted;
  const Ticket ticket = model.submit({&row, 1}, 1);
  const TimePoint end = std::chrono::steady_clock::now() + kAtMost;
  for (;;) {
    const Result<bool> done = model.collect(ticket, emitted);
    if (!done.ok()) return done.status();
    if (*done) return emitted.at(0).log_prob;
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
  for (size_t i = 1; i < values.size(); ++i) {
    const Result<float> log_prob = score(model, values[i]);
    if (!log_prob.ok()) return log_prob.status();
    if (std::isfinite(*log_prob) && *log_prob > kLeast) continue;
    return overflows("the log-probability of value " + std::to_string(values[i]) + " at position " +
                     std::to_string(i) + " is " + std::to_string(*log_prob));
  }
  const int64_t inputs = std::ssize(values) - 1;
  const std::string part = part_that_overflows(model, inputs);
  if (!part.empty()) {
    return overflows("the state's part '" + part + "' overflows after " + std::to_string(inputs) +
                     " values");
  }
  return {};
}

}  // namespace runnel
