#include "bench/load_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace runnel {
namespace {

constexpr int64_t kMostValues = int64_t{1} << 20;
constexpr size_t kMostChoices = 64;

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number < 0 || number > kMostValues) return std::nullopt;
  return number;
}

// The numbers between separators. Returns none if one of them is not a number.
std::vector<int64_t> numbers_of(std::string_view text, char separator) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t end = text.find(separator);
    const auto number = number_of(text.substr(0, end));
    if (!number || numbers.size() == kMostChoices) return {};
    numbers.push_back(*number);
    if (end == std::string_view::npos) return numbers;
    text.remove_prefix(end + 1);
  }
}

// A number from 0 to below 1. The library's own distributions differ between machines.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

double exponential(std::mt19937_64& random, double mean) {
  return -std::log1p(-uniform(random)) * mean;
}

}  // namespace

Result<Lengths> Lengths::parse(std::string_view text, const std::string& flag) {
  constexpr std::string_view kExponential = "exp:";
  Lengths lengths;
  if (text.starts_with(kExponential)) {
    lengths.kind_ = Kind::kExponential;
    lengths.numbers_ = numbers_of(text.substr(kExponential.size()), ',');
    if (lengths.numbers_.size() == 1 && lengths.numbers_[0] > 0) return lengths;
  } else if (text.find('-') != std::string_view::npos) {
    lengths.kind_ = Kind::kRange;
    lengths.numbers_ = numbers_of(text, '-');
    const auto& range = lengths.numbers_;
    if (range.size() == 2 && range[0] <= range[1]) return lengths;
  } else {
    lengths.numbers_ = numbers_of(text, ',');
    if (!lengths.numbers_.empty()) return lengths;
  }
  return invalid_argument(flag +
                          ": expected a length like 64, 16-128, 16,64,512 or exp:64, each "
                          "number from 0 to " +
                          std::to_string(kMostValues) + ", not " + quote(std::string(text), 40));
}

int64_t Lengths::draw(std::mt19937_64& random) const {
  switch (kind_) {
    case Kind::kOneOf:
      return numbers_[random() % numbers_.size()];
    case Kind::kRange:
      return numbers_[0] + static_cast<int64_t>(random() % (numbers_[1] - numbers_[0] + 1));
    case Kind::kExponential:
      break;
  }
  const double length = exponential(random, static_cast<double>(numbers_[0]));
  return std::clamp<int64_t>(std::llround(length), 1, kMostValues);
}

LoadPlan::LoadPlan(const CallMix& traffic, double rate)
    : traffic_(traffic), rate_(rate), random_(traffic.seed) {}

PlannedCall LoadPlan::next() {
  PlannedCall call;
  if (rate_ > 0) at_ += exponential(random_, 1 / rate_);
  call.at = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(at_));
  call.prompt = std::max(traffic_.prompt.draw(random_), traffic_.least_prompt);
  call.values = std::max<int64_t>(traffic_.values.draw(random_), 1);
  if (traffic_.max_length > 0) {
    call.prompt = std::min(call.prompt, traffic_.max_length - 1);
    call.values = std::min(call.values, traffic_.max_length - call.prompt);
  }
  const double share = uniform(random_);
  if (share < traffic_.cancel_share) {
    call.manner = Manner::kCancels;
  } else if (share < traffic_.cancel_share + traffic_.stall_share) {
    call.manner = Manner::kStalls;
  }
  call.break_after = static_cast<int64_t>(random_() % static_cast<uint64_t>(call.values));
  call.seed = random_();
  return call;
}

std::vector<int32_t> random_prompt(int64_t count, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> values(count);
  for (int32_t& value : values) {
    value = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  }
  return values;
}

}  // namespace runnel
