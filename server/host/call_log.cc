#include "server/host/call_log.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "base/hex.h"
#include "base/json_fields.h"
#include "base/limits.h"
#include "base/ordered_json.h"
#include "base/sha256.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kMarkDigits = 16;
constexpr int64_t kMostNumber = std::numeric_limits<int64_t>::max();
constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
constexpr JsonLimits kJsonLimits = {
    .bytes = kMostLogBytes, .values = kMostLogValues + 2 * kMaxLogitBiases + 64, .depth = 4};

bool fits(const std::vector<int32_t>& values) { return std::ssize(values) <= kMostLogValues; }

// Tells an entry that was changed, or is of another session.
std::string mark_of(std::string_view text, std::string_view key) {
  Sha256 hash;
  for (const std::string_view part : {key, text}) hash.add(std::as_bytes(std::span(part)));
  const Sha256Digest digest = hash.finish();
  const std::string digits = hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
  return digits.substr(0, kMarkDigits);
}

OrderedJson json_of(const Penalties& penalties) {
  OrderedJson values = OrderedJson::array();
  OrderedJson biases = OrderedJson::array();
  for (const LogitBias& term : penalties.logit_bias) {
    values.push_back(term.value);
    biases.push_back(shortest(term.bias));
  }
  return {{"repetition", shortest(penalties.repetition)},
          {"frequency", shortest(penalties.frequency)},
          {"presence", shortest(penalties.presence)},
          {"values", std::move(values)},
          {"biases", std::move(biases)}};
}

// --- Reading ---

class EntryReader {
 public:
  // `faults` and `fields` outlive it.
  EntryReader(Faults& faults, const Fields& fields) : faults_(faults), fields_(fields) {}

  float number(const char* key) const {
    const Json* const member = fields_.require(key, "a number");
    if (member == nullptr) return 0.0F;
    return number_in(*member, fields_.path(key));
  }

  std::vector<float> numbers(const char* key) const {
    std::vector<float> numbers;
    for (const Json& item : items(key, kMaxLogitBiases)) {
      numbers.push_back(number_in(item, fields_.path(key)));
    }
    return numbers;
  }

  std::vector<int32_t> values(const char* key, int64_t most) const {
    std::vector<int32_t> values;
    for (const Json& item : items(key, most)) {
      const bool is_value =
          item.is_number_unsigned() && item.get<uint64_t>() <= static_cast<uint64_t>(kMost32);
      if (!is_value) faults_.add(fields_.path(key), "a value", describe(item));
      values.push_back(is_value ? item.get<int32_t>() : 0);
    }
    return values;
  }

  Penalties penalties() const {
    Penalties read;
    read.repetition = number("repetition");
    read.frequency = number("frequency");
    read.presence = number("presence");
    const auto biased = values("values", kMaxLogitBiases);
    const auto biases = numbers("biases");
    if (biased.size() != biases.size()) {
      faults_.add(fields_.path("biases"), "has not one number for each value");
      return read;
    }
    for (size_t i = 0; i < biased.size(); ++i) read.logit_bias.push_back({biased[i], biases[i]});
    return read;
  }

 private:
  float number_in(const Json& item, const std::string& path) const {
    const float number = item.is_number() ? item.get<float>() : NAN;
    if (std::isfinite(number)) return number;
    faults_.add(path, "a number of fp32", describe(item));
    return 0.0F;
  }

  std::vector<Json> items(const char* key, int64_t most) const {
    const std::string expected = "an array of at most " + std::to_string(most);
    const Json* const member = fields_.require(key, expected);
    if (member == nullptr) return {};
    if (member->is_array() && static_cast<int64_t>(member->size()) <= most) return *member;
    faults_.add(fields_.path(key), expected, describe(*member));
    return {};
  }

  Faults& faults_;
  const Fields& fields_;
};

Status damaged(const std::string& what) { return {Code::kDataLoss, what}; }

// The numerics id comes first: of another one, nothing else matters.
Result<LoggedCall> parse_call(std::string_view text, std::string_view numerics) {
  const std::string source = "the entry";
  const auto json = parse_json(text, source, kJsonLimits);
  if (!json.ok()) return damaged(json.status().message());
  Faults faults(source);
  const Fields fields(faults, &*json, "",
                      {"numerics", "before", "after", "sampled", "begin", "seed", "temperature",
                       "top_k", "top_p", "min_p", "greedy", "penalties", "prompt"});
  const EntryReader reader(faults, fields);
  const Json* const found = fields.require("numerics", "a text");
  if (found != nullptr && found->is_string() && *found != std::string(numerics)) {
    return Status(Code::kFailedPrecondition, "it is of numerics id " +
                                                 quote(found->get<std::string>()) +
                                                 ", and this server computes " + quote(numerics) +
                                                 ": the values would have other bits");
  }
  LoggedCall call;
  call.before = fields.integer("before", 0, kMostNumber);
  call.after = fields.integer("after", 0, kMostNumber);
  GenerateRequest& request = call.request;
  request.max_values = fields.integer("sampled", 0, kMostLogValues);
  request.begin = fields.boolean("begin", false);
  request.seed = static_cast<uint64_t>(
      fields.integer("seed", std::numeric_limits<int64_t>::min(), kMostNumber));
  request.sampling = {.temperature = reader.number("temperature"),
                      .top_k = fields.small("top_k", 0, kMost32),
                      .top_p = reader.number("top_p"),
                      .min_p = reader.number("min_p"),
                      .greedy = fields.boolean("greedy", false)};
  if (fields.find("penalties") != nullptr) {
    const Fields inner =
        fields.object("penalties", {"repetition", "frequency", "presence", "values", "biases"});
    request.penalties = std::make_shared<const Penalties>(EntryReader(faults, inner).penalties());
  }
  request.prompt = reader.values("prompt", kMostLogValues);
  request.ignore_eos = true;
  if (!faults.ok()) return damaged(faults.status().message());
  return call;
}

Result<LoggedCall> parse_entry(std::string_view entry, std::string_view numerics,
                               std::string_view key) {
  const std::string_view mark = entry.substr(0, kMarkDigits);
  const std::string_view text = entry.substr(mark.size());
  if (mark != mark_of(text, key)) return damaged("it is damaged, or of another session");
  return parse_call(text, numerics);
}

}  // namespace

// --- CallNotes ---

std::optional<CallNotes> CallNotes::of(const GenerateRequest& request) {
  const bool has_place = request.turn ? fits(request.turn->values) && fits(request.turn->after_stop)
                                      : fits(request.prompt);
  if (!request.in_place() || !has_place) return std::nullopt;
  CallNotes notes;
  GenerateRequest& kept = notes.call_->request;
  kept.turn = request.turn;
  notes.is_long_at_start_ = !fits(request.prompt);
  if (!notes.is_long_at_start_) kept.prompt = request.prompt;
  kept.begin = request.begin;
  kept.seed = request.seed;
  kept.sampling = request.sampling;
  kept.penalties = request.penalties;
  return notes;
}

void CallNotes::start(const Started& started) {
  if (started.place == TurnPlace::kStart && is_long_at_start_) {
    call_.reset();
    return;
  }
  call_->before = started.position;
  take_turn(call_->request, started.place);
}

void CallNotes::finish(const Finished& finished) {
  if (!call_) return;
  // A call that ran out of time may not have read all of its prompt.
  if (finished.reason == FinishReason::kTime && finished.sampled_values == 0) {
    call_.reset();
    return;
  }
  call_->request.max_values = finished.sampled_values;
  call_->after = finished.position;
}

// --- Entries ---

std::string log_text(const LoggedCall& call, std::string_view numerics, std::string_view key) {
  const GenerateRequest& request = call.request;
  const Sampling& sampling = request.sampling;
  OrderedJson json = {{"numerics", numerics},
                      {"before", call.before},
                      {"after", call.after},
                      {"sampled", request.max_values.value_or(0)},
                      {"begin", request.begin},
                      {"seed", static_cast<int64_t>(request.seed.value_or(0))},
                      {"temperature", shortest(sampling.temperature)},
                      {"top_k", sampling.top_k},
                      {"top_p", shortest(sampling.top_p)},
                      {"min_p", shortest(sampling.min_p)},
                      {"greedy", sampling.greedy}};
  if (request.penalties != nullptr) json["penalties"] = json_of(*request.penalties);
  json["prompt"] = request.prompt;
  const std::string text = json_text(json);
  return mark_of(text, key) + text;
}

Result<std::vector<LoggedCall>> read_log(const Record& record, std::string_view numerics,
                                         std::string_view key) {
  std::vector<LoggedCall> calls;
  int64_t position = record.state_at;
  for (size_t i = 0; i < record.log.size(); ++i) {
    const std::string entry = "entry " + std::to_string(i + 1) + " of its log: ";
    auto call = parse_entry(record.log[i], numerics, key);
    if (!call.ok()) return Status(call.status().code(), entry + call.status().message());
    if (call->before != position || call->after < position) {
      return damaged(entry + "it does not begin at position " + std::to_string(position));
    }
    position = call->after;
    calls.push_back(std::move(*call));
  }
  if (position != record.position) {
    return damaged("its log ends at position " + std::to_string(position) + ", not at " +
                   std::to_string(record.position));
  }
  if (position - record.state_at > kMostLogValues) {
    return damaged("its log leads over more than " + std::to_string(kMostLogValues) + " values");
  }
  return calls;
}

}  // namespace runnel
