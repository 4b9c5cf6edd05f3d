#include "server/host/call_log.h"

#include <bit>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "base/limits.h"
#include "base/ordered_json.h"
#include "base/text.h"
#include "storage/stored_json.h"

namespace runnel {
namespace {

constexpr int64_t kMostNumber = std::numeric_limits<int64_t>::max();
constexpr size_t kSamplingNumbers = 5;
constexpr size_t kPenaltyNumbers = 3;  // before the biases, which have two each
constexpr JsonLimits kJsonLimits = {
    .bytes = kMostLogBytes, .values = kMostLogValues + 2 * kMaxLogitBiases + 64, .depth = 3};

bool fits(const std::vector<int32_t>& values) { return std::ssize(values) <= kMostLogValues; }

// An entry stores the bits of an fp32 number as an integer, so that no conversion can change them.
int32_t bits_of(float number) { return std::bit_cast<int32_t>(number); }
float float_of(int32_t bits) { return std::bit_cast<float>(bits); }

std::vector<int32_t> numbers_of(const Sampling& sampling) {
  return {bits_of(sampling.temperature), sampling.top_k, bits_of(sampling.top_p),
          bits_of(sampling.min_p), sampling.greedy ? 1 : 0};
}

std::vector<int32_t> numbers_of(const Penalties& penalties) {
  std::vector<int32_t> numbers = {bits_of(penalties.repetition), bits_of(penalties.frequency),
                                  bits_of(penalties.presence)};
  for (const LogitBias& term : penalties.logit_bias) {
    numbers.insert(numbers.end(), {term.value, bits_of(term.bias)});
  }
  return numbers;
}

Penalties penalties_of(const std::vector<int32_t>& numbers) {
  Penalties penalties = {float_of(numbers[0]), float_of(numbers[1]), float_of(numbers[2])};
  for (size_t i = kPenaltyNumbers; i + 1 < numbers.size(); i += 2) {
    penalties.logit_bias.push_back({numbers[i], float_of(numbers[i + 1])});
  }
  return penalties;
}

// Reads an array of `least` to `most` 32-bit integers. Returns `least` zeros after a fault.
std::vector<int32_t> read_numbers(const Fields& fields, Faults& faults, const char* key,
                                  size_t least, size_t most) {
  const std::string expected =
      "an array of " + std::to_string(least) + " to " + std::to_string(most) + " 32-bit integers";
  std::vector<int32_t> numbers(least);
  const Json* const member = fields.require(key, expected);
  if (member == nullptr) return numbers;
  std::vector<int32_t> found;
  bool is_right = member->is_array() && member->size() >= least && member->size() <= most;
  for (size_t i = 0; is_right && i < member->size(); ++i) {
    const Json& item = (*member)[i];
    is_right = item.is_number_unsigned()
                   ? std::in_range<int32_t>(item.get<uint64_t>())
                   : item.is_number_integer() && std::in_range<int32_t>(item.get<int64_t>());
    if (is_right) found.push_back(item.get<int32_t>());
  }
  if (is_right) return found;
  faults.add(fields.path(key), expected, describe(*member));
  return numbers;
}

// Checks the numerics id first: if it differs, nothing else matters. The engine checks the ranges
// of the parameters.
Result<LoggedCall> parse_call(std::string_view text, std::string_view numerics) {
  StoredJson json(text, "the entry", kJsonLimits,
                  {"numerics", "before", "after", "count", "sampled", "begin", "seed", "sampling",
                   "penalties", "prompt"});
  const Fields& fields = json.fields();
  Faults& faults = json.faults();
  const Json* const found = fields.require("numerics", "a text");
  if (found != nullptr && *found != std::string(numerics)) {
    return Status(Code::kFailedPrecondition, "it is of numerics id " + describe(*found) +
                                                 ", and this server computes " + quote(numerics) +
                                                 ": the values would have other bits");
  }
  LoggedCall call;
  call.before = fields.integer("before", 0, kMostNumber);
  call.after = fields.integer("after", 0, kMostNumber);
  GenerateRequest& request = call.request;
  const auto bits = [&](const char* key) {
    return static_cast<uint64_t>(
        fields.integer(key, std::numeric_limits<int64_t>::min(), kMostNumber));
  };
  call.sampled = bits("sampled");
  request.max_values = fields.integer("count", 0, kMostLogValues);
  request.begin = fields.boolean("begin", false);
  request.seed = bits("seed");
  const auto sampling =
      read_numbers(fields, faults, "sampling", kSamplingNumbers, kSamplingNumbers);
  request.sampling = {.temperature = float_of(sampling[0]),
                      .top_k = sampling[1],
                      .top_p = float_of(sampling[2]),
                      .min_p = float_of(sampling[3]),
                      .greedy = sampling[4] != 0};
  if (fields.find("penalties") != nullptr) {
    const auto penalties = read_numbers(fields, faults, "penalties", kPenaltyNumbers,
                                        kPenaltyNumbers + 2 * kMaxLogitBiases);
    request.penalties = std::make_shared<const Penalties>(penalties_of(penalties));
  }
  request.prompt = read_numbers(fields, faults, "prompt", 0, kMostLogValues);
  request.ignore_eos = true;
  if (Status s = json.status(); !s.ok()) return s;
  return call;
}

}  // namespace

// --- Calls ---

std::optional<LoggedCall> loggable(const GenerateRequest& request) {
  const bool has_place = request.turn ? fits(request.turn->values) && fits(request.turn->after_stop)
                                      : fits(request.prompt);
  if (!request.in_place() || !has_place) return std::nullopt;
  LoggedCall call;
  call.request.turn = request.turn;
  if (!request.turn) call.request.prompt = request.prompt;
  call.request.begin = request.begin;
  call.request.seed = request.seed;
  call.request.sampling = request.sampling;
  call.request.penalties = request.penalties;
  return call;
}

void note_start(std::optional<LoggedCall>& call, const Started& started) {
  // The first turn of a conversation contains all of its messages, which are long.
  if (call && call->request.turn && started.place == TurnPlace::kStart) call.reset();
  if (!call) return;
  call->before = started.position;
  take_turn(call->request, started.place);
}

void note_end(std::optional<LoggedCall>& call, const Finished& finished) {
  // A call that timed out may not have read all of its prompt.
  if (finished.reason == FinishReason::kTime && finished.sampled_values == 0) call.reset();
  if (!call) return;
  call->request.max_values = finished.sampled_values;
  call->after = finished.position;
}

// --- Entries ---

std::string log_text(const LoggedCall& call, std::string_view numerics) {
  const GenerateRequest& request = call.request;
  OrderedJson json = {{"numerics", numerics},
                      {"before", call.before},
                      {"after", call.after},
                      {"count", request.max_values.value_or(0)},
                      {"sampled", static_cast<int64_t>(call.sampled)},
                      {"begin", request.begin},
                      {"seed", static_cast<int64_t>(request.seed.value_or(0))},
                      {"sampling", numbers_of(request.sampling)}};
  if (request.penalties != nullptr) json["penalties"] = numbers_of(*request.penalties);
  json["prompt"] = request.prompt;
  return json_text(json);
}

Result<std::vector<LoggedCall>> read_log(const Record& record, std::string_view numerics) {
  std::vector<LoggedCall> calls;
  int64_t position = record.state_at;
  for (size_t i = 0; i < record.log.size(); ++i) {
    const std::string entry = "entry " + std::to_string(i + 1) + ": ";
    auto call = parse_call(record.log[i], numerics);
    if (!call.ok()) return Status(call.status().code(), entry + call.status().message());
    if (call->before != position || call->after < position) {
      return damaged(entry + "it does not begin at position " + std::to_string(position));
    }
    position = call->after;
    calls.push_back(std::move(*call));
  }
  if (position != record.position) {
    return damaged("it ends at position " + std::to_string(position) + ", not at " +
                   std::to_string(record.position));
  }
  if (position - record.state_at > kMostLogValues) {
    return damaged("it leads over more than " + std::to_string(kMostLogValues) + " values");
  }
  return calls;
}

}  // namespace runnel
