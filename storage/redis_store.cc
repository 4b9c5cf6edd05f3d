#include "storage/redis_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>
#include <utility>
#include <vector>

#include "base/text.h"
#include "storage/open_store.h"
#include "storage/record_key.h"

namespace runnel {
namespace {

constexpr std::string_view kPrefix = "runnel:";
// Pieces that no record names expire after this time. Until then, a running call may use them.
constexpr std::string_view kUnnamedMs = "600000";
constexpr int64_t kMostMs = int64_t{1} << 47;  // an epoch has room for it
constexpr size_t kAhead = 2;                   // pieces that are requested, or sent, before a reply
constexpr std::string_view kMostExamined = "1000";  // members of a list, per script
static_assert(kMostBulkBytes >= kMostRecordBytes);

// The time of Redis and, if there is a record, its text.
constexpr std::string_view kRead = R"(
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local text = redis.call('GET', KEYS[1])
if not text then return {now} end
return {now, text}
)";

// Replaces the record, and puts its session into its list, if the record still has the version
// ARGV[1] and the caller's estimate of the time is not too wrong. Returns 1 and the time of Redis.
// Otherwise changes nothing, and returns 0.
// - ARGV[2]: the new text of the record, '' to delete the record.
// - ARGV[3]: milliseconds until the record and its state expire.
// - ARGV[4]: the epoch of the state.
// - ARGV[5]: the epoch of the state before this one, '' to keep that state.
// - ARGV[6]: the number of pieces that become the state.
// - ARGV[7]: the present name of these pieces.
// - ARGV[8]: the list of the session, '' if it is in none.
// - ARGV[9]: the session's member of the list.
// - ARGV[10]: the estimated time of Redis in milliseconds since 1970, '' if it is not estimated.
// - ARGV[11]: the largest allowed error of the estimate, in milliseconds.
// If the user may not write lists, nothing changes. Each time a session is added to a list, three
// members are chosen at random, and those whose records have expired are removed. So not much more
// than a third of the members can have expired.
constexpr std::string_view kSwap = R"(
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[10] ~= '' and math.abs(now - ARGV[10]) > tonumber(ARGV[11]) then return {0} end
local text = redis.call('GET', KEYS[1])
if (text and string.match(text, '^[^\n]*\n?') or '') ~= ARGV[1] then return {0} end
local function piece(epoch, n) return KEYS[1] .. ':' .. epoch .. ':' .. n end
if ARGV[8] ~= '' and ARGV[2] == '' then
  redis.call('ZREM', ARGV[8], ARGV[9])
elseif ARGV[8] ~= '' then
  if redis.call('ZADD', ARGV[8], 0, ARGV[9]) == 1 then
    for _, member in ipairs(redis.call('ZRANDMEMBER', ARGV[8], 3)) do
      local key = string.match(member, '\n(.*)$') or ''
      if member ~= ARGV[9] and redis.call('EXISTS', 'runnel:' .. key) == 0 then
        redis.call('ZREM', ARGV[8], member)
      end
    end
  end
  redis.call('PEXPIRE', ARGV[8], ARGV[3], 'NX')
  redis.call('PEXPIRE', ARGV[8], ARGV[3], 'GT')
end
for n = 0, ARGV[6] - 1 do redis.call('RENAME', ARGV[7] .. ':' .. n, piece(ARGV[4], n)) end
local n = 0
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  while redis.call('PEXPIRE', piece(ARGV[4], n), ARGV[3]) == 1 do n = n + 1 end
end
n = 0
while ARGV[5] ~= '' and redis.call('UNLINK', piece(ARGV[5], n)) == 1 do n = n + 1 end
return {1, now}
)";

// The ids of sessions in the list KEYS[1], from ARGV[1] on, at most ARGV[2] of them, with one id
// per line after the first line. Examines at most ARGV[3] members, and removes the members whose
// records have expired. If it has examined ARGV[3] members, the first line is the id of the last
// one, and there may be more sessions. Otherwise the first line is empty.
constexpr std::string_view kList = R"(#!lua flags=allow-oom
local most, lines = tonumber(ARGV[2]), {''}
local found = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[3])
for i, member in ipairs(found) do
  if #lines > most then return table.concat(lines, '\n') end
  local id, key = string.match(member, '^(.-)\n(.*)$')
  if id and redis.call('EXISTS', 'runnel:' .. key) == 1 then
    lines[#lines + 1] = id
  else
    redis.call('ZREM', KEYS[1], member)
  end
  if i == tonumber(ARGV[3]) then lines[1] = string.match(member, '^[^\n]*') end
end
return table.concat(lines, '\n')
)";

// Changes nothing. Redis refuses it if the user may not run the commands that the other scripts use
// for lists.
constexpr std::string_view kMayList = R"(#!lua flags=allow-oom
redis.call('ZADD', KEYS[1], 'XX', 0, '')
redis.call('ZREM', KEYS[1], '')
redis.call('ZRANDMEMBER', KEYS[1], 3)
redis.call('ZRANGEBYLEX', KEYS[1], '-', '+')
return redis.call('EXISTS', KEYS[1])
)";

// The first line of kSwap. If the memory of Redis is full, calls can still end and sessions can
// still be deleted, but new sessions are refused.
constexpr std::string_view kAlways = "#!lua flags=allow-oom";
constexpr std::string_view kUnlessFull = "#!lua";

int64_t steady_ms(const Clock& clock) {
  return std::chrono::floor<std::chrono::milliseconds>(clock.now().time_since_epoch()).count();
}

std::string name_of(const std::string& key) { return std::string(kPrefix) + key; }

std::string list_name(const std::string& list) { return std::string(kPrefix) + "list:" + list; }

// A session in its list. Members have the order of their ids, because no id has a character below
// the newline.
std::string member_of(const Record& record, const std::string& key) {
  return record.id + "\n" + key;
}

std::string piece_name(const std::string& name, size_t number) {
  return name + ":" + std::to_string(number);
}

// FAILED_PRECONDITION if Redis may delete sessions to make room. If the user may not ask, the check
// passes.
Status check_policy(RedisClient& client, const std::string& redis) {
  constexpr std::string_view kPolicy = "maxmemory_policy:";
  const std::array<std::string_view, 2> words = {"INFO", "memory"};
  const auto info = client.ask(words, RespKind::kBulk);
  if (!info.ok()) return client.is_broken() ? info.status() : Status();
  const size_t found = info->text.find(kPolicy);
  if (found == info->text.npos) return {};
  const size_t start = found + kPolicy.size();
  const size_t end = info->text.find_first_of("\r\n", start);
  const std::string policy = info->text.substr(start, end - start);
  if (policy == "noeviction") return {};
  return {Code::kFailedPrecondition, redis + " has the maxmemory-policy " + quote(policy) +
                                         ", which deletes sessions when the memory is full; set "
                                         "it to noeviction"};
}

// The first line of a record's text, as kSwap finds it. It has the epoch of the last call, its
// lease, and the lengths of the answer and the log, so no two texts of a record have the same one.
std::string_view version_of(std::string_view text) {
  const size_t end = text.find('\n');
  return text.substr(0, end == text.npos ? end : end + 1);
}

bool is_time(const RespValue& value) {
  return value.kind == RespKind::kNumber && value.number >= 0 && value.number <= kMostMs;
}

// Whether a reply has the form of kSwap's.
bool is_swapped(const RespValue& reply) {
  const auto& items = reply.items;
  if (items.size() != 1 && items.size() != 2) return false;
  const int64_t expected = items.size() == 2 ? 1 : 0;
  return items[0].kind == RespKind::kNumber && items[0].number == expected && is_time(items.back());
}

// Whether a reply has the form of kRead's.
bool is_seen(const RespValue& reply) {
  const auto& items = reply.items;
  if (items.size() != 1 && items.size() != 2) return false;
  if (!is_time(items[0])) return false;
  return std::all_of(items.begin() + 1, items.end(), [](const RespValue& item) {
    return item.kind == RespKind::kBulk && !item.text.empty();
  });
}

}  // namespace

Result<std::unique_ptr<RedisStore>> RedisStore::open(RedisOptions options, const StoreTimes& times,
                                                     const Clock& clock) {
  options.timeout_ms = times.timeout_ms;
  const std::string redis = redis_name(options.url);
  std::unique_ptr<RedisStore> store(new RedisStore(std::move(options), times, clock));
  const auto client = store->pool_.take();
  if (!client.ok()) return client.status();
  if (Status s = check_policy(**client, redis); !s.ok()) return s;
  // None of these changes anything. Redis before version 7 rejects the second.
  const std::string none(2 * sizeof(uint64_t), '0');
  if (const auto seen = store->read(**client, none); !seen.ok()) return seen.status();
  const auto swapped = store->swap(**client, none, {.version = "none"}, false, 0, {});
  if (!swapped.ok()) return swapped.status();
  const std::string list = list_name(none);
  const std::array<std::string_view, 5> words = {"EVAL", kMayList, "1", list, ""};
  const auto may_list = (*client)->ask(words, RespKind::kNumber);
  return may_list.ok() ? Result<std::unique_ptr<RedisStore>>(std::move(store)) : may_list.status();
}

RedisStore::RedisStore(RedisOptions options, const StoreTimes& times, const Clock& clock)
    : times_(times), clock_(clock), replica_(new_replica()), pool_(std::move(options)) {}

// --- Records ---

void RedisStore::note_time(int64_t redis_ms) { ahead_ms_ = redis_ms - steady_ms(clock_); }

// The time of Redis, in milliseconds since 1970, as far as it is known without asking. It is wrong
// if one of the clocks was set or stopped since the last reply. So kSwap compares it with the time.
int64_t RedisStore::estimated_ms() const { return steady_ms(clock_) + ahead_ms_; }

// The record as this store has written it last. None: it has written none, or has forgotten it.
// Others may have changed the record since, and then swap() does not replace it.
std::optional<RedisStore::Seen> RedisStore::known(const std::string& key) {
  auto found = known_.find(key);
  const int64_t estimated = estimated_ms();
  const int64_t now = clock_.is_virtual() ? clock_.unix_ms() : estimated;
  if (!found || has_expired(found->record, now, times_.ttl_ms)) return {};
  Seen seen = {.now = now, .estimated_ms = estimated, .version = std::move(found->version)};
  if (!found->record.list.empty()) {
    seen.list = list_name(found->record.list);
    seen.member = member_of(found->record, key);
  }
  seen.record = std::move(found->record);
  return seen;
}

Result<RedisStore::Seen> RedisStore::read(RedisClient& client, const std::string& key) {
  const std::string name = name_of(key);
  const std::array<std::string_view, 4> words = {"EVAL", kRead, "1", name};
  auto reply = client.ask(words, RespKind::kArray);
  if (!reply.ok()) return reply.status();
  if (!is_seen(*reply)) return client.wrong_reply();
  auto& items = reply->items;
  note_time(items[0].number);
  Seen seen = {.now = clock_.is_virtual() ? clock_.unix_ms() : items[0].number};
  if (items.size() == 1) return seen;
  seen.version = version_of(items[1].text);
  auto record = parse_record(items[1].text, key);
  if (record.ok() && !record->list.empty()) {
    seen.list = list_name(record->list);
    seen.member = member_of(*record, key);
  }
  if (!record.ok()) {
    seen.damage = {Code::kDataLoss, name + " in Redis: " + record.status().message()};
  } else if (!has_expired(*record, seen.now, times_.ttl_ms)) {
    seen.record = std::move(*record);
  }
  return seen;
}

// Gives the record of `seen` to Redis, with these pieces as its state, if there are any. Returns
// false, and changes nothing, if Redis no longer has the version of `seen`, or if the estimated
// time of `seen` is wrong by more than a quarter of a lease. `is_new`: there was no session. The
// record is known afterwards if Redis has it.
Result<bool> RedisStore::swap(RedisClient& client, const std::string& key, const Seen& seen,
                              bool is_new, int64_t old_state, const Pieces& pieces) {
  const Record* const record = seen.record ? &*seen.record : nullptr;
  const int64_t state = record == nullptr ? 0 : record->state;
  const bool drops = old_state != 0 && old_state != state;
  const bool creates = is_new && record != nullptr;
  const std::string script = std::string(creates ? kUnlessFull : kAlways) + std::string(kSwap);
  const std::string name = name_of(key);
  const std::string text = record == nullptr ? "" : record_text(*record, key);
  const std::string expires = std::to_string(times_.ttl_ms + times_.lease_ms);
  const std::string epoch = std::to_string(state);
  const std::string old = drops ? std::to_string(old_state) : "";
  const std::string count = std::to_string(pieces.count);
  const bool is_listed = record != nullptr && !record->list.empty();
  const std::string list = is_listed ? list_name(record->list) : seen.list;
  const std::string member = is_listed ? member_of(*record, key) : seen.member;
  const std::string now = seen.estimated_ms == 0 ? "" : std::to_string(seen.estimated_ms);
  const std::string error = std::to_string(times_.lease_ms / 4);
  const std::array<std::string_view, 15> words = {"EVAL",      script,  "1",    name, seen.version,
                                                  text,        expires, epoch,  old,  count,
                                                  pieces.name, list,    member, now,  error};
  known_.forget(key);
  const auto reply = client.ask(words, RespKind::kArray);
  if (!reply.ok()) return reply.status();
  if (!is_swapped(*reply)) return client.wrong_reply();
  if (reply->items.size() == 1) return false;
  note_time(reply->items[1].number);
  if (record != nullptr) known_.put(key, version_of(text), *record, text.size());
  return true;
}

// Applies `change` to `seen`, and returns the result of `change`. None: swap() has changed nothing.
Result<std::optional<bool>> RedisStore::try_change(RedisClient& client, const std::string& key,
                                                   Seen& seen, const SeenChange& change,
                                                   const Pieces& pieces) {
  const bool is_new = !seen.record;
  const int64_t old_state = is_new ? 0 : seen.record->state;
  const bool has_changed = change(seen);
  if (!seen.damage.ok()) return seen.damage;
  if (!has_changed) return std::optional(false);
  const auto swapped = swap(client, key, seen, is_new, old_state, pieces);
  if (!swapped.ok()) return swapped.status();
  return *swapped ? std::optional(true) : std::nullopt;
}

// Applies `change`, repeatedly until nobody else has changed the record in between or the time is
// over. Often the record is still as this store has written it last, so it is read only if that
// does not lead to a change.
Result<bool> RedisStore::change(RedisClient& client, const std::string& key,
                                const SeenChange& change, const Pieces& pieces) {
  if (auto seen = known(key)) {
    const auto changed = try_change(client, key, *seen, change, pieces);
    if (!changed.ok()) return changed.status();
    if (changed->value_or(false)) return true;
  }
  for (;;) {
    auto seen = read(client, key);
    if (!seen.ok()) return seen.status();
    const auto changed = try_change(client, key, *seen, change, pieces);
    if (!changed.ok()) return changed.status();
    if (changed->has_value()) return **changed;
  }
}

Result<bool> RedisStore::change(const std::string& key, const SeenChange& change_it) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  return change(**client, key, change_it, {});
}

Result<Begun> RedisStore::begin(const std::string& key, const Claim& claim) {
  Begun begun;
  const auto changed = change(key, [&](Seen& seen) {
    const bool is_ours = seen.record && seen.record->owner.starts_with(replica_ + "/");
    begun = seen.record ? begin_record(*seen.record, claim, seen.now, times_.lease_ms, is_ours)
                        : Begun();
    return begun.outcome == FenceOutcome::kOk;
  });
  return changed.ok() ? Result<Begun>(begun) : changed.status();
}

Result<std::optional<Record>> RedisStore::look(const std::string& key) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  auto seen = read(**client, key);
  if (!seen.ok()) return seen.status();
  if (!seen->damage.ok()) return seen->damage;
  return std::move(seen->record);
}

Result<bool> RedisStore::renew(const std::string& key, const Holder& holder) {
  return change(key, [&](Seen& seen) {
    return seen.record && renew_record(*seen.record, holder, seen.now, times_.lease_ms);
  });
}

Result<bool> RedisStore::end(const std::string& key, const Holder& holder,
                             const Snapshot* snapshot) {
  const auto end = [&](Seen& seen) {
    return seen.record && end_record(*seen.record, holder, seen.now, snapshot != nullptr);
  };
  return snapshot == nullptr ? change(key, end) : change_state(key, *snapshot, end);
}

Result<bool> RedisStore::log(const std::string& key, const Holder& holder, const LogEntry& entry) {
  return change(key, [&](Seen& seen) {
    return seen.record && log_record(*seen.record, holder, seen.now, entry);
  });
}

Result<bool> RedisStore::settle(const std::string& key, int64_t saved, const Snapshot& snapshot) {
  return change_state(key, snapshot, [&](const Seen& seen) {
    return seen.record && may_settle(*seen.record, saved);
  });
}

Result<int64_t> RedisStore::create(const std::string& key, const NewSession& session,
                                   const Snapshot* snapshot) {
  int64_t epoch = 0;
  const auto create = [&](Seen& seen) {
    if (seen.record) return false;
    seen.record = new_record(session, seen.now);
    epoch = seen.record->epoch;
    return true;
  };
  const auto created =
      snapshot == nullptr ? change(key, create) : change_state(key, *snapshot, create);
  if (!created.ok()) return created.status();
  return *created ? epoch : 0;
}

// An unreadable record is deleted as well. Its state expires.
Result<bool> RedisStore::remove(const std::string& key) {
  bool is_there = false;
  const auto removed = change(key, [&](Seen& seen) {
    is_there = seen.record || !seen.damage.ok();
    seen.record.reset();
    seen.damage = {};
    return !seen.version.empty();
  });
  return removed.ok() ? Result<bool>(is_there) : removed;
}

Result<std::vector<std::string>> RedisStore::list(const std::string& list, const std::string& after,
                                                  size_t most) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  const std::string name = list_name(list);
  std::vector<std::string> ids;
  // Each script continues after the previous one, until the time of a call is over.
  for (std::string last = after;;) {
    // Sorts after every key, which has only hexadecimal digits.
    const std::string from = last.empty() ? "-" : "(" + last + "\ng";
    const std::string count = std::to_string(most - ids.size());
    const std::array<std::string_view, 7> words = {"EVAL", kList, "1",          name,
                                                   from,   count, kMostExamined};
    const auto reply = (*client)->ask(words, RespKind::kBulk);
    if (!reply.ok()) return reply.status();
    std::istringstream lines(reply->text);
    std::string examined;
    std::getline(lines, examined);
    if (!examined.empty() && !(is_listed_id(examined) && examined > last)) {
      return (*client)->wrong_reply();
    }
    for (std::string id; std::getline(lines, id);) {
      if (!is_listed_id(id) || ids.size() == most) return (*client)->wrong_reply();
      ids.push_back(std::move(id));
    }
    if (examined.empty() || ids.size() == most) return ids;
    last = std::move(examined);
  }
}

// --- States ---

// Changes the record together with its state, which is named after the last call that was saved.
// The pieces are written first, under a name that no record has, because a reply may be lost and
// the change may still happen later: it must not find other pieces there. They get their final name
// together with the record. They are not written if the change would fail, as far as that is known.
Result<bool> RedisStore::change_state(const std::string& key, const Snapshot& snapshot,
                                      const SeenChange& change_it) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  const auto would_change = [&]() -> Result<bool> {
    auto seen = read(**client, key);
    if (!seen.ok()) return seen.status();
    if (!seen->damage.ok()) return seen->damage;
    return change_it(*seen);
  };
  if (auto known_one = known(key); !known_one || !change_it(*known_one)) {
    if (const auto would = would_change(); !would.ok() || !*would) return would;
  }
  const auto pieces = write_pieces(**client, key, snapshot);
  if (!pieces.ok()) {
    // If the session has another owner by now, the caller must not try again.
    const auto would = would_change();
    return would.ok() && !*would ? would : pieces.status();
  }
  const auto put = [&](Seen& now) {
    if (!change_it(now)) return false;
    put_state(*now.record, now.record->saved, snapshot.position, pieces->tail);
    return true;
  };
  const auto changed = change(**client, key, put, *pieces);
  if (!changed.ok() || !*changed) remove_pieces(**client, *pieces);
  return changed;
}

Result<RedisStore::Pieces> RedisStore::write_pieces(RedisClient& client, const std::string& key,
                                                    const Snapshot& snapshot) {
  Pieces pieces = {.name =
                       name_of(key) + "~" + replica_ + "." + std::to_string(written_.fetch_add(1))};
  Status status;
  const auto receive = [&] {
    client.restart_time();
    const auto reply = client.receive(RespKind::kText);
    if (!status.ok()) return;
    status = !reply.ok() ? reply.status() : reply->text == "OK" ? Status() : client.wrong_reply();
  };
  std::string rest;
  std::string last;
  for (bool is_over = false; status.ok() && !is_over;) {
    while (rest.size() < kRedisPieceBytes && !is_over) {
      const std::string more = snapshot.next();
      is_over = more.empty();
      keep_tail(last, more);
      rest += more;
    }
    const std::string name = piece_name(pieces.name, pieces.count++);
    const std::string_view piece = std::string_view(rest).substr(0, kRedisPieceBytes);
    const std::array<std::string_view, 5> words = {"SET", name, piece, "PX", kUnnamedMs};
    client.restart_time();
    if (Status s = client.send(words); !s.ok()) return s;
    rest.erase(0, piece.size());
    if (client.unanswered() == kAhead) receive();
  }
  while (client.unanswered() > 0 && !client.is_broken()) receive();
  pieces.tail = tail_of(last);
  if (status.ok()) return pieces;
  remove_pieces(client, pieces);
  return status;
}

// Full memory must not get fuller with each call that cannot be saved. A piece that stays will
// expire.
void RedisStore::remove_pieces(RedisClient& client, const Pieces& pieces) {
  if (pieces.count == 0 || !client.is_usable()) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < pieces.count; ++i) names.push_back(piece_name(pieces.name, i));
  std::vector<std::string_view> words = {"UNLINK"};
  words.insert(words.end(), names.begin(), names.end());
  client.restart_time();
  static_cast<void>(client.ask(words, RespKind::kNumber));
}

Status RedisStore::load(const std::string& key, const Record& record, const StateSink& sink) {
  const auto taken = pool_.take();
  if (!taken.ok()) return taken.status();
  RedisClient& client = **taken;
  const std::string name = name_of(key) + ":" + std::to_string(record.state);
  const Status damaged(Code::kDataLoss, name + " in Redis is not the state that was saved");
  std::string last;
  size_t asked = 0;
  for (bool is_over = false; !is_over || client.unanswered() > 0;) {
    client.restart_time();
    while (!is_over && client.unanswered() < kAhead) {
      const std::string piece = piece_name(name, asked++);
      const std::array<std::string_view, 2> words = {"GET", piece};
      if (Status s = client.send(words); !s.ok()) return s;
    }
    const auto piece = client.receive(RespKind::kBulk);
    if (!piece.ok()) return piece.status();
    if (is_over) continue;  // it was requested in vain
    if (piece->kind == RespKind::kNil) return state_replaced();
    if (piece->text.size() > kRedisPieceBytes) return damaged;
    is_over = piece->text.size() < kRedisPieceBytes;
    keep_tail(last, piece->text);
    if (Status s = sink(std::as_bytes(std::span(piece->text))); !s.ok()) return s;
  }
  return tail_of(last) == record.tail ? Status() : damaged;
}

}  // namespace runnel
