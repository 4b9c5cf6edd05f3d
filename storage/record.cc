#include "storage/record.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "base/hex.h"
#include "storage/record_key.h"
#include "storage/stored_json.h"

namespace runnel {
namespace {

constexpr int64_t kVersion = 2;
constexpr int64_t kMostTextBytes = 512;
constexpr JsonLimits kJsonLimits = {
    .bytes = kMostRecordBytes, .values = 24 + kMostLogEntries, .depth = 3};
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kEpochsPerMs = 4096;
constexpr int64_t kMostEpoch = int64_t{1} << 60;  // leaves room to count up

std::string text_of(const Fields& fields, Faults& faults, const char* key,
                    int64_t most = kMostTextBytes) {
  const std::string expected = "a text of at most " + std::to_string(most) + " bytes";
  const Json* const member = fields.require(key, expected);
  if (member == nullptr) return "";
  if (member->is_string() && std::ssize(member->get_ref<const std::string&>()) <= most) {
    return member->get<std::string>();
  }
  faults.add(fields.path(key), expected, describe(*member));
  return "";
}

// The texts after the header, each with a newline. The header has their lengths, in this order.
// JSON would escape them, and a call would spend most of its time in the store on reading a long
// log.
class Texts {
 public:
  explicit Texts(std::string_view rest) : rest_(rest) {}

  // The next text. `member` is its length or, in a record of version 1, the text itself.
  std::optional<std::string> next(const Json& member, int64_t most) {
    if (const auto* const text = member.get_ptr<const std::string*>()) {
      return std::ssize(*text) <= most ? std::optional(*text) : std::nullopt;
    }
    const int64_t size = member.is_number_integer() ? member.get<int64_t>() : -1;
    if (size < 0 || size > most || size >= std::ssize(rest_)) return {};
    const std::string_view text = rest_.substr(0, static_cast<size_t>(size));
    if (rest_[text.size()] != '\n') return {};
    rest_.remove_prefix(text.size() + 1);
    return std::string(text);
  }

  bool is_empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// A record without an answer does not have these members.
SavedAnswer answer_of(const Fields& fields, Faults& faults, Texts& texts) {
  SavedAnswer answer = {.has_ended = !fields.boolean("stopped", false)};
  const Json* const member = fields.find("answer");
  if (member == nullptr) return answer;
  if (auto text = texts.next(*member, kMostAnswerBytes)) {
    answer.text = std::move(*text);
  } else {
    faults.add(fields.path("answer"),
               "a text of at most " + std::to_string(kMostAnswerBytes) + " bytes",
               describe(*member));
  }
  return answer;
}

// A record that was written before lists existed has neither member.
void read_list(const Fields& fields, Faults& faults, Record& record) {
  if (fields.find("list") == nullptr && fields.find("id") == nullptr) return;
  record.list = text_of(fields, faults, "list");
  record.id = text_of(fields, faults, "id");
}

// Records the call that was saved last, if its client gave it an id.
void put_last(Record& record, const std::string& request, const SavedAnswer& answer) {
  const bool is_named = request.starts_with(kNamedCall);
  record.last = is_named ? request : "";
  record.answer = is_named ? answer : SavedAnswer();
}

std::vector<std::string> log_of(const Fields& fields, Faults& faults, Texts& texts) {
  const std::string expected = "an array of at most " + std::to_string(kMostLogEntries) +
                               " texts, of at most " + std::to_string(kMostLogBytes) + " bytes";
  const Json* const member = fields.require("log", expected);
  if (member == nullptr) return {};
  std::vector<std::string> log;
  int64_t left = kMostLogBytes;
  bool fits = member->is_array() && member->size() <= kMostLogEntries;
  for (size_t i = 0; fits && i < member->size(); ++i) {
    auto entry = texts.next((*member)[i], left);
    fits = entry.has_value();
    if (!fits) break;
    left -= std::ssize(*entry);
    log.push_back(std::move(*entry));
  }
  if (!fits) faults.add(fields.path("log"), expected, describe(*member));
  return log;
}

// Whether the call still holds the session. It does not after it has ended, so ending it a second
// time changes nothing.
bool holds(const Record& record, const Holder& holder) {
  return record.until != 0 && record.epoch == holder.epoch && record.owner == holder.owner;
}

// Epochs grow with the time, and random bits distinguish epochs of the same millisecond. So no
// epoch is used twice. This matters in two cases:
// - A session is deleted and made again. If it got an epoch of the old session, a late write to the
//   old session would be accepted for the new one.
// - A store loses its last writes, and a call begins again. If it got the epoch of the lost call, a
//   server that still has a copy of the lost state would take it for the new state.
int64_t epoch_after(int64_t epoch, int64_t now) {
  std::random_device device;
  return std::max(epoch, now * kEpochsPerMs) + 1 + device() % (kEpochsPerMs / 2);
}

}  // namespace

std::string record_text(const Record& record, std::string_view key) {
  const auto number = [](const char* name, int64_t value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  const auto text = [](const char* name, std::string_view value) {
    return ",\"" + std::string(name) + "\":" + json_string(value);
  };
  const SavedAnswer& answer = record.answer;
  std::string lengths, texts;
  if (!answer.text.empty()) texts = answer.text + "\n";
  for (const std::string& entry : record.log) {
    lengths += (lengths.empty() ? "" : ",") + std::to_string(entry.size());
    texts += entry + "\n";
  }
  return "{\"version\":" + std::to_string(kVersion) + text("key", key) +
         number("epoch", record.epoch) + text("owner", record.owner) +
         number("until", record.until) + text("begun", record.begun) + text("last", record.last) +
         number("seed", record.seed) + number("position", record.position) +
         number("state", record.state) + text("tail", record.tail) + number("used", record.used) +
         number("state_at", record.state_at) + number("saved", record.saved) +
         (answer.has_ended ? "" : ",\"stopped\":true") +
         (answer.text.empty() ? "" : number("answer", std::ssize(answer.text))) +
         (record.list.empty() ? "" : text("list", record.list) + text("id", record.id)) +
         ",\"log\":[" + lengths + "]}\n" + texts;
}

Result<Record> parse_record(std::string_view text, std::string_view key) {
  const std::string_view header = text.substr(0, text.find('\n'));
  Texts texts(text.substr(std::min(text.size(), header.size() + 1)));
  StoredJson json(
      header, "the record", kJsonLimits,
      {"version", "key", "epoch", "owner", "until", "begun", "last", "seed", "position", "state",
       "tail", "used", "state_at", "saved", "stopped", "answer", "list", "id", "log"});
  const Fields& fields = json.fields();
  Faults& faults = json.faults();
  fields.integer("version", 1, kVersion);
  const std::string found = text_of(fields, faults, "key");
  Record record;
  record.epoch = fields.integer("epoch", 1, kMostEpoch);
  record.owner = text_of(fields, faults, "owner");
  record.until = fields.integer("until", 0, kMost);
  record.begun = text_of(fields, faults, "begun");
  record.last = text_of(fields, faults, "last");
  record.seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), kMost);
  record.position = fields.integer("position", 0, kMost);
  record.state = fields.integer("state", 0, kMostEpoch);
  record.tail = text_of(fields, faults, "tail");
  record.used = fields.integer("used", 0, kMost);
  record.state_at = fields.integer("state_at", 0, kMost);
  record.saved = fields.integer("saved", 1, kMostEpoch);
  record.answer = answer_of(fields, faults, texts);
  record.log = log_of(fields, faults, texts);
  read_list(fields, faults, record);
  if (Status s = json.status(); !s.ok()) return s;
  if (found != key) return damaged("the record is of another session");
  if (!texts.is_empty() || text.find('\0') != text.npos) {
    return damaged("the record does not have the texts that it names");
  }
  const bool is_listed = is_record_list(record.list) && is_listed_id(record.id);
  if (!is_listed && !(record.list.empty() && record.id.empty())) {
    return damaged("the record is in a list that cannot be");
  }
  const bool has_tail = record.tail.size() <= 2 * kTailBytes && bytes_of_hex(record.tail);
  if (!has_tail || record.state > record.epoch) {
    return damaged("the record has a state that cannot be");
  }
  const bool is_reached =
      record.log.empty() ? record.state_at == record.position : record.state_at <= record.position;
  if (!is_reached || record.saved > record.epoch) {
    return damaged("the record has a log that does not lead to its position");
  }
  if (record.last.empty() && record.answer != SavedAnswer()) {
    return damaged("the record has an answer to no call");
  }
  return record;
}

Begun begin_record(Record& record, const Claim& claim, int64_t now, int64_t lease, bool dead) {
  Begun begun;
  begun.before = record;
  begun.repeats = !record.last.empty() && record.last == claim.request;
  const bool same_call = !record.begun.empty() && record.begun == claim.request;
  if (record.until > now && !dead) {
    begun.outcome = FenceOutcome::kBusy;
    begun.left_ms = record.until - now;
  } else if (!begun.repeats &&
             claim.expected_position.value_or(record.position) != record.position) {
    begun.outcome = FenceOutcome::kElsewhere;
  } else if (!record.begun.empty() && !same_call && !claim.expected_position &&
             !claim.after_cut_off) {
    begun.outcome = FenceOutcome::kCutOff;
  } else {
    begun.outcome = FenceOutcome::kOk;
    begun.epoch = record.epoch = epoch_after(record.epoch, now);
    begun.seed = same_call && !claim.is_seed_given ? record.seed : claim.seed;
    record.owner = claim.owner;
    record.until = now + lease;
    record.begun = claim.request;
    record.seed = begun.seed;
    record.used = now;
  }
  return begun;
}

bool renew_record(Record& record, const Holder& holder, int64_t now, int64_t lease) {
  if (!holds(record, holder)) return false;
  record.until = now + lease;
  record.used = now;  // a long call that is cut off must not leave an expired session
  return true;
}

bool end_record(Record& record, const Holder& holder, int64_t now, bool saved) {
  if (!holds(record, holder)) return false;
  if (saved) {
    put_last(record, record.begun, holder.answer);
    record.saved = record.epoch;
  }
  record.begun = saved ? "" : holder.cut_off;
  record.seed = saved ? 0 : holder.seed;
  record.until = 0;
  record.used = now;
  return true;
}

bool log_record(Record& record, const Holder& holder, int64_t now, const LogEntry& entry) {
  if (!end_record(record, holder, now, true)) return false;
  record.position = entry.position;
  record.log.push_back(entry.text);
  return true;
}

bool may_settle(const Record& record, int64_t saved) {
  return record.until == 0 && record.saved == saved && !record.log.empty();
}

void put_state(Record& record, int64_t epoch, int64_t position, std::string tail) {
  record.position = position;
  record.state = epoch;
  record.tail = std::move(tail);
  record.state_at = position;
  record.log.clear();
}

Record new_record(const NewSession& session, int64_t now) {
  Record record;
  record.epoch = epoch_after(0, now);
  record.saved = record.epoch;
  record.owner = session.owner;
  record.used = now;
  put_last(record, session.request, session.answer);
  if (is_record_list(session.list) && is_listed_id(session.id)) {
    record.list = session.list;
    record.id = session.id;
  }
  return record;
}

bool has_expired(const Record& record, int64_t now, int64_t ttl) {
  return record.until <= now && now - record.used > ttl;
}

}  // namespace runnel
