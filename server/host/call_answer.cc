#include "server/host/call_answer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/hex.h"
#include "base/ordered_json.h"
#include "storage/stored_json.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "answers are little-endian");

constexpr int64_t kMostCount = std::numeric_limits<int64_t>::max();
constexpr JsonLimits kAnswerLimits = {.bytes = kMostAnswerBytes, .values = 20, .depth = 3};
constexpr int64_t kWordBytes = sizeof(int32_t);

// The values are stored as text of 32-bit words: for each value, the value itself, the bits of its
// log-probability and, if there are top log-probabilities, their number and the same two words for
// each.

int64_t words_of(const CallRecord& call) {
  const int64_t each = call.top.empty() ? 2 : 3;
  return each * std::ssize(call.values) + 2 * std::ssize(call.top);
}

std::string values_text(const CallRecord& call) {
  std::vector<int32_t> words;
  words.reserve(static_cast<size_t>(words_of(call)));
  const auto add = [&words](int32_t value, float log_prob) {
    words.push_back(value);
    words.push_back(std::bit_cast<int32_t>(log_prob));
  };
  auto top = call.top.begin();
  for (const StreamValue& value : call.values) {
    add(value.value, value.log_prob);
    if (call.top.empty()) continue;
    words.push_back(value.top_count);
    for (int i = 0; i < value.top_count; ++i, ++top) add(top->value, top->log_prob);
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words.data());
  return base64({bytes, words.size() * kWordBytes});
}

std::string answer_text(const CallRecord& call) {
  OrderedJson json = {
      {"digest", hex({reinterpret_cast<const char*>(call.digest.data()), call.digest.size()})},
      {"position", call.position},
      {"place", static_cast<int>(call.place)},
      {"has_top", !call.top.empty()},
      {"values", values_text(call)}};
  if (call.finished) {
    const Finished& finished = *call.finished;
    json["finished"] = {{"reason", static_cast<int>(finished.reason)},
                        {"prompt_values", finished.prompt_values},
                        {"cached_values", finished.cached_values},
                        {"sampled_values", finished.sampled_values},
                        {"position", finished.position},
                        {"elapsed_ns", finished.elapsed.count()}};
    if (finished.first_value) {
      json["finished"]["first_value_ns"] = finished.first_value->count();
    }
  }
  return json_text(json);
}

// --- Reading ---

// The words of the values, one after another.
class AnswerWords {
 public:
  explicit AnswerWords(std::string_view bytes) : words_(bytes.size() / kWordBytes) {
    if (!words_.empty()) std::memcpy(words_.data(), bytes.data(), words_.size() * kWordBytes);
  }

  bool at_end() const { return at_ == words_.size(); }
  size_t left() const { return words_.size() - at_; }
  int32_t next() { return words_[at_++]; }

 private:
  std::vector<int32_t> words_;
  size_t at_ = 0;
};

// Reads a value and its log-probability; none if there are not two more words, or if they are
// invalid.
std::optional<TopLogProb> next_value(AnswerWords& words, const Spec& spec) {
  if (words.left() < 2) return std::nullopt;
  const int32_t value = words.next();
  const auto log_prob = std::bit_cast<float>(words.next());
  if (value < 0 || value >= spec.vocabulary || std::isnan(log_prob)) return std::nullopt;
  return TopLogProb{value, log_prob};
}

// Adds the values, the last of which is before position `end`. Returns false if they are invalid.
bool add_values(std::string_view bytes, bool has_top, int64_t end, const Spec& spec,
                CallRecord& call) {
  AnswerWords words(bytes);
  while (!words.at_end()) {
    const auto value = next_value(words, spec);
    if (!value || (has_top && words.left() == 0)) return false;
    const int32_t count = has_top ? words.next() : 0;
    if (count < 0 || count > kMaxTopLogProbs) return false;
    for (int32_t i = 0; i < count; ++i) {
      const auto top = next_value(words, spec);
      if (!top) return false;
      call.top.push_back(*top);
    }
    call.values.push_back({.value = value->value, .log_prob = value->log_prob, .top_count = count});
  }
  const int64_t first = end - std::ssize(call.values);
  for (size_t i = 0; i < call.values.size(); ++i) {
    call.values[i].position = first + static_cast<int64_t>(i);
  }
  return first >= call.position;
}

// Reads a member that holds bytes as text, decoded by `decode`.
template <typename Decode>
std::string decoded(const Fields& fields, Faults& faults, const char* key,
                    const std::string& expected, const Decode& decode) {
  const Json* const member = fields.require(key, expected);
  if (member == nullptr) return "";
  std::optional<std::string> bytes;
  if (member->is_string()) bytes = decode(member->get_ref<const std::string&>());
  if (!bytes) faults.add(fields.path(key), expected, describe(*member));
  return bytes.value_or("");
}

RequestDigest read_digest(const Fields& fields, Faults& faults) {
  RequestDigest digest{};
  const auto decode = [&digest](std::string_view text) {
    auto bytes = bytes_of_hex(text);
    if (bytes && bytes->size() != digest.size()) bytes.reset();
    return bytes;
  };
  const std::string bytes = decoded(fields, faults, "digest", "64 hexadecimal digits", decode);
  std::memcpy(digest.data(), bytes.data(), bytes.size());
  return digest;
}

// `position` is the session's position after the call. No count of values in the answer may exceed
// it.
Finished read_finished(const Fields& fields, int64_t position) {
  const Fields found =
      fields.object("finished", {"reason", "prompt_values", "cached_values", "sampled_values",
                                 "position", "elapsed_ns", "first_value_ns"});
  Finished finished;
  finished.reason =
      static_cast<FinishReason>(found.small("reason", 0, static_cast<int>(FinishReason::kEos)));
  finished.prompt_values = found.integer("prompt_values", 0, position);
  finished.cached_values = found.integer("cached_values", 0, position);
  finished.sampled_values = found.integer("sampled_values", 0, position);
  finished.position = found.integer("position", 0, kMostCount);
  finished.elapsed = Duration(found.integer("elapsed_ns", 0, kMostCount));
  if (found.find("first_value_ns") != nullptr) {
    finished.first_value = Duration(found.integer("first_value_ns", 0, kMostCount));
  }
  return finished;
}

}  // namespace

SavedAnswer answer_of(const CallRecord* call, int64_t most) {
  if (call == nullptr) return {};
  SavedAnswer answer = {.has_ended = call->finished.has_value()};
  if (!call->whole || base64_length(words_of(*call) * kWordBytes) > most) return answer;
  answer.text = answer_text(*call);
  if (std::ssize(answer.text) > most) answer.text.clear();
  return answer;
}

Result<std::shared_ptr<CallRecord>> read_answer(const Record& record, const Spec& spec) {
  StoredJson json(record.answer.text, "the answer", kAnswerLimits,
                  {"digest", "position", "place", "has_top", "values", "finished"});
  const Fields& fields = json.fields();
  Faults& faults = json.faults();
  auto call = std::make_shared<CallRecord>();
  call->digest = read_digest(fields, faults);
  call->position = fields.integer("position", 0, record.position);
  call->place =
      static_cast<TurnPlace>(fields.small("place", 0, static_cast<int>(TurnPlace::kStopText)));
  const bool has_top = fields.boolean("has_top", false);
  const std::string values =
      decoded(fields, faults, "values", "words of 32 bits in base64", [](std::string_view text) {
        auto bytes = from_base64(text);
        if (bytes && bytes->size() % kWordBytes != 0) bytes.reset();
        return bytes;
      });
  if (fields.find("finished") != nullptr) {
    call->finished = read_finished(fields, record.position);
  }
  if (Status s = json.status(); !s.ok()) return s;
  if (!add_values(values, has_top, record.position, spec, *call)) {
    return damaged("the answer has values that cannot be");
  }
  if (call->finished.has_value() != record.answer.has_ended) {
    return damaged("the answer and the record do not agree on whether the call has ended");
  }
  if (call->finished && call->finished->position != record.position) {
    return damaged("the answer ends at position " + std::to_string(call->finished->position) +
                   ", not at " + std::to_string(record.position));
  }
  call->shrink();
  return call;
}

}  // namespace runnel
