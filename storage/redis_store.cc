#include "storage/redis_store.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "storage/open_store.h"

namespace runnel {
namespace {

constexpr std::string_view kPrefix = "runnel:";
// Each try that fails is a change that another call has made.
constexpr int kMostSwaps = 100;
// Pieces that no record names belong to a call that still runs, or to none.
constexpr std::string_view kUnnamedMs = "600000";
constexpr int64_t kMostMs = int64_t{1} << 50;
constexpr size_t kAhead = 2;  // pieces that are asked for, or sent, without a reply

// The time of Redis, and if there is a record its text and version.
const RedisScript& read_script() {
  static const RedisScript kScript(R"(
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local text = redis.call('GET', KEYS[1])
if not text then return {now} end
return {now, text, redis.sha1hex(text)}
)");
  return kScript;
}

// Replaces the record if it still has the version ARGV[1]; returns whether it has. ARGV[2]: the new
// text, '' to delete it. ARGV[3]: milliseconds until the record and its state expire. ARGV[4]: the
// epoch of its state. ARGV[5]: the epoch of the state that it had before, '' to keep it. ARGV[6]:
// the number of pieces that become its state. ARGV[7]: the name that they have.
constexpr const char* kSwap = R"(
local text = redis.call('GET', KEYS[1])
if (text and redis.sha1hex(text) or '') ~= ARGV[1] then return 0 end
local function piece(epoch, n) return KEYS[1] .. ':' .. epoch .. ':' .. n end
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
return 1
)";

// Of a session that is there: it must be able to end its call, and to be deleted, also when the
// memory is full.
const RedisScript& swap_script() {
  static const RedisScript kScript(std::string("#!lua flags=allow-oom") + kSwap);
  return kScript;
}

const RedisScript& create_script() {
  static const RedisScript kScript(std::string("#!lua") + kSwap);
  return kScript;
}

std::string name_of(const std::string& key) { return std::string(kPrefix) + key; }

std::string piece_name(const std::string& name, size_t number) {
  return name + ":" + std::to_string(number);
}

Status contended(const std::string& key) {
  return {Code::kUnavailable, name_of(key) + " in Redis is changed by others all the time"};
}

// Whether a reply has the form that its script gives it.
bool is_seen(const RespValue& reply) {
  const auto& items = reply.items;
  if (items.size() != 1 && items.size() != 3) return false;
  if (items[0].kind != RespKind::kNumber) return false;
  if (items[0].number < 0 || items[0].number > kMostMs) return false;
  return std::all_of(items.begin() + 1, items.end(), [](const RespValue& item) {
    return item.kind == RespKind::kBulk && !item.text.empty();
  });
}

// Cuts what a snapshot gives into pieces of kRedisPieceBytes, and a shorter last one.
class PieceCutter {
 public:
  explicit PieceCutter(const Snapshot& snapshot) : snapshot_(snapshot) {}

  bool is_over() const { return is_over_; }
  std::string next() {
    while (rest_.size() < kRedisPieceBytes && !is_over_) {
      const std::string more = snapshot_.next();
      is_over_ = more.empty();
      rest_ += more;
    }
    std::string piece = rest_.substr(0, kRedisPieceBytes);
    rest_.erase(0, piece.size());
    last_ += piece.substr(piece.size() - std::min(piece.size(), kTailBytes));
    last_.erase(0, last_.size() - std::min(last_.size(), kTailBytes));
    return piece;
  }
  std::string tail() const { return tail_of(last_); }

 private:
  const Snapshot& snapshot_;
  std::string rest_, last_;
  bool is_over_ = false;
};

}  // namespace

Result<std::unique_ptr<RedisStore>> RedisStore::open(RedisOptions options, const StoreTimes& times,
                                                     const Clock& clock) {
  options.timeout_ms = times.timeout_ms;
  std::unique_ptr<RedisStore> store(new RedisStore(std::move(options), times, clock));
  const auto client = store->pool_.take();
  if (!client.ok()) return client.status();
  // Neither changes anything, and both have to be allowed.
  const std::string none(2 * sizeof(uint64_t), '0');
  if (const auto seen = store->read_text(**client, none); !seen.ok()) return seen.status();
  if (const auto swapped = store->swap(**client, none, "none", {}); !swapped.ok()) {
    return swapped.status();
  }
  return store;
}

RedisStore::RedisStore(RedisOptions options, const StoreTimes& times, const Clock& clock)
    : times_(times), clock_(clock), replica_(new_replica()), pool_(std::move(options)) {}

// --- Records ---

Result<RedisStore::SeenText> RedisStore::read_text(RedisClient& client,
                                                   const std::string& key) const {
  auto reply = client.run(read_script(), name_of(key), {}, RespKind::kArray);
  if (!reply.ok()) return reply.status();
  if (!is_seen(*reply)) return client.unexpected(RespValue{});
  auto& items = reply->items;
  SeenText seen = {.now = clock_.is_virtual() ? clock_.unix_ms() : items[0].number};
  if (items.size() == 1) return seen;
  seen.text = std::move(items[1].text);
  seen.version = std::move(items[2].text);
  return seen;
}

Result<RedisStore::SeenRecord> RedisStore::read(RedisClient& client, const std::string& key) const {
  auto seen = read_text(client, key);
  if (!seen.ok()) return seen.status();
  SeenRecord found = {.seen = std::move(*seen)};
  if (found.seen.version.empty()) return found;
  auto record = parse_record(found.seen.text, key);
  if (!record.ok()) {
    return Status(Code::kDataLoss, name_of(key) + " in Redis: " + record.status().message());
  }
  if (!has_expired(*record, found.seen.now, times_.ttl_ms)) found.record = std::move(*record);
  return found;
}

// True if the record had this version, and has been replaced.
Result<bool> RedisStore::swap(RedisClient& client, const std::string& key,
                              const std::string& version, const RecordSwap& swap) const {
  static const WrittenPieces kNone;
  const WrittenPieces& pieces = swap.pieces == nullptr ? kNone : *swap.pieces;
  const int64_t state = swap.record == nullptr ? 0 : swap.record->state;
  const bool drops = swap.old_state != 0 && swap.old_state != state;
  const std::string text = swap.record == nullptr ? "" : record_text(*swap.record, key);
  const std::string expires = std::to_string(times_.ttl_ms + times_.lease_ms);
  const std::string epoch = std::to_string(state);
  const std::string old = drops ? std::to_string(swap.old_state) : "";
  const std::string count = std::to_string(pieces.count);
  const std::array<std::string_view, 7> arguments = {version, text,  expires,    epoch,
                                                     old,     count, pieces.name};
  const auto reply = client.run(swap.is_new ? create_script() : swap_script(), name_of(key),
                                arguments, RespKind::kNumber);
  if (!reply.ok()) return reply.status();
  if (reply->kind == RespKind::kNil || reply->number < 0 || reply->number > 1) {
    return client.unexpected(RespValue{});
  }
  return reply->number == 1;
}

Result<bool> RedisStore::change_record(const std::string& key, const RecordChange& change) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  return change_by(**client, key, change, nullptr);
}

// Applies `change` to the record, which is written if it says true, until nobody else has changed
// the record in between.
Result<bool> RedisStore::change_by(RedisClient& client, const std::string& key,
                                   const RecordChange& change, const WrittenPieces* pieces) const {
  for (int i = 0; i < kMostSwaps; ++i) {
    auto found = read(client, key);
    if (!found.ok()) return found.status();
    if (!found->record) return false;
    const int64_t old_state = found->record->state;
    if (!change(*found->record, found->seen.now)) return false;
    const auto swapped =
        swap(client, key, found->seen.version,
             {.record = &*found->record, .old_state = old_state, .pieces = pieces});
    if (!swapped.ok() || *swapped) return swapped;
  }
  return contended(key);
}

Result<Begun> RedisStore::begin(const std::string& key, const Claim& claim) {
  Begun begun;
  const auto changed = change_record(key, [&](Record& record, int64_t now) {
    const bool is_ours = record.owner.starts_with(replica_ + "/");
    begun = begin_record(record, claim, now, times_.lease_ms, is_ours);
    return begun.outcome == FenceOutcome::kOk;
  });
  if (!changed.ok()) return changed.status();
  const bool has_gone = !*changed && begun.outcome == FenceOutcome::kOk;  // between two tries
  return has_gone ? Begun() : begun;
}

Result<std::optional<Record>> RedisStore::look(const std::string& key) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  auto found = read(**client, key);
  if (!found.ok()) return found.status();
  return std::move(found->record);
}

Result<bool> RedisStore::renew(const std::string& key, const Holder& holder) {
  return change_record(key, [&](Record& record, int64_t now) {
    return renew_record(record, holder, now, times_.lease_ms);
  });
}

Result<bool> RedisStore::end(const std::string& key, const Holder& holder,
                             const Snapshot* snapshot) {
  const auto end = [&](Record& record, int64_t now) {
    return end_record(record, holder, now, snapshot != nullptr);
  };
  return snapshot == nullptr ? change_record(key, end)
                             : change_state(key, holder.epoch, *snapshot, end);
}

Result<bool> RedisStore::log(const std::string& key, const Holder& holder, const LogEntry& entry) {
  return change_record(
      key, [&](Record& record, int64_t now) { return log_record(record, holder, now, entry); });
}

Result<bool> RedisStore::settle(const std::string& key, int64_t saved, const Snapshot& snapshot) {
  return change_state(key, saved, snapshot,
                      [&](const Record& record, int64_t) { return may_settle(record, saved); });
}

Result<int64_t> RedisStore::create(const std::string& key, const std::string& owner,
                                   const Snapshot* snapshot) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  const auto found = read(**client, key);
  if (!found.ok()) return found.status();
  if (found->record) return 0;
  WrittenPieces pieces;
  if (snapshot != nullptr) {
    auto written = write_pieces(**client, key, *snapshot);
    if (!written.ok()) return written.status();
    pieces = std::move(*written);
  }
  auto epoch = create_record(**client, key, owner, snapshot, pieces);
  if (!epoch.ok() || *epoch == 0) remove_pieces(**client, pieces);
  return epoch;
}

Result<int64_t> RedisStore::create_record(RedisClient& client, const std::string& key,
                                          const std::string& owner, const Snapshot* snapshot,
                                          const WrittenPieces& pieces) const {
  for (int i = 0; i < kMostSwaps; ++i) {
    const auto found = read(client, key);
    if (!found.ok()) return found.status();
    if (found->record) return 0;
    Record record = new_record(owner, found->seen.now);
    if (snapshot != nullptr) put_state(record, record.epoch, snapshot->position, pieces.tail);
    const auto swapped = swap(
        client, key, found->seen.version,
        {.record = &record, .pieces = snapshot == nullptr ? nullptr : &pieces, .is_new = true});
    if (!swapped.ok()) return swapped.status();
    if (*swapped) return record.epoch;
  }
  return contended(key);
}

// A record that cannot be read is deleted as well. Its state expires.
Result<bool> RedisStore::remove(const std::string& key) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  for (int i = 0; i < kMostSwaps; ++i) {
    const auto seen = read_text(**client, key);
    if (!seen.ok()) return seen.status();
    if (seen->version.empty()) return false;
    const auto record = parse_record(seen->text, key);
    const auto swapped =
        swap(**client, key, seen->version, {.old_state = record.ok() ? record->state : 0});
    if (!swapped.ok()) return swapped.status();
    if (*swapped) return !record.ok() || !has_expired(*record, seen->now, times_.ttl_ms);
  }
  return contended(key);
}

// --- States ---

// Changes the record together with its state. The pieces are written first, under a name that no
// record has: a reply that is lost, and comes true later, must not find other pieces there. They
// get their name together with the record. They are not written in vain.
Result<bool> RedisStore::change_state(const std::string& key, int64_t epoch,
                                      const Snapshot& snapshot, const RecordChange& change) {
  const auto client = pool_.take();
  if (!client.ok()) return client.status();
  auto found = read(**client, key);
  if (!found.ok()) return found.status();
  if (!found->record || !change(*found->record, found->seen.now)) return false;
  const auto pieces = write_pieces(**client, key, snapshot);
  if (!pieces.ok()) return pieces.status();
  const auto put = [&](Record& record, int64_t now) {
    if (!change(record, now)) return false;
    put_state(record, epoch, snapshot.position, pieces->tail);
    return true;
  };
  const auto changed = change_by(**client, key, put, &*pieces);
  if (!changed.ok() || !*changed) remove_pieces(**client, *pieces);
  return changed;
}

Result<RedisStore::WrittenPieces> RedisStore::write_pieces(RedisClient& client,
                                                           const std::string& key,
                                                           const Snapshot& snapshot) {
  WrittenPieces pieces = {.name = name_of(key) + "~" + replica_ + "." +
                                  std::to_string(written_.fetch_add(1))};
  PieceCutter cutter(snapshot);
  Status status;
  const auto receive = [&] {
    const auto reply = client.receive(RespKind::kText);
    if (status.ok() && !reply.ok()) status = reply.status();
    if (status.ok() && reply->text != "OK") status = client.unexpected(RespValue{});
  };
  while (status.ok() && !cutter.is_over()) {
    const std::string piece = cutter.next();
    const std::string name = piece_name(pieces.name, pieces.count);
    const std::array<std::string_view, 5> words = {"SET", name, piece, "PX", kUnnamedMs};
    status = client.send(words);
    if (!status.ok()) return status;
    ++pieces.count;
    if (client.unanswered() == kAhead) receive();
  }
  while (client.unanswered() > 0 && !client.is_broken()) receive();
  pieces.tail = cutter.tail();
  if (status.ok()) return pieces;
  remove_pieces(client, pieces);
  return status;
}

// A memory that is full must not get fuller with each call that cannot be saved. If a piece
// stays, it expires.
void RedisStore::remove_pieces(RedisClient& client, const WrittenPieces& pieces) {
  for (size_t i = 0; i < pieces.count && client.is_usable(); ++i) {
    const std::string name = piece_name(pieces.name, i);
    const std::array<std::string_view, 2> words = {"UNLINK", name};
    static_cast<void>(client.ask(words, RespKind::kNumber));
  }
}

Status RedisStore::load(const std::string& key, const Record& record, const StateSink& sink) {
  const auto taken = pool_.take();
  if (!taken.ok()) return taken.status();
  RedisClient& client = **taken;
  const std::string name = name_of(key) + ":" + std::to_string(record.state);
  const Status damaged(Code::kDataLoss, name + " in Redis is not the state that was saved");
  std::string last;
  size_t asked = 0;
  for (bool is_over = false; !is_over;) {
    while (client.unanswered() < kAhead) {
      const std::string piece = piece_name(name, asked++);
      const std::array<std::string_view, 2> words = {"GET", piece};
      if (Status s = client.send(words); !s.ok()) return s;
    }
    const auto piece = client.receive(RespKind::kBulk);
    if (!piece.ok()) return piece.status();
    if (piece->kind == RespKind::kNil) return state_replaced();
    if (piece->text.size() > kRedisPieceBytes) return damaged;
    is_over = piece->text.size() < kRedisPieceBytes;
    const std::string_view text = piece->text;
    last.append(text.substr(text.size() - std::min(text.size(), kTailBytes)));
    last.erase(0, last.size() - std::min(last.size(), kTailBytes));
    if (Status s = sink(std::as_bytes(std::span(text))); !s.ok()) return s;
  }
  while (client.unanswered() > 0) {
    if (const auto rest = client.receive(RespKind::kBulk); !rest.ok()) return rest.status();
  }
  return tail_of(last) == record.tail ? Status() : damaged;
}

}  // namespace runnel
