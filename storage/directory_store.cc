#include "storage/directory_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "storage/open_store.h"
#include "storage/record_key.h"

namespace runnel {
namespace {

constexpr std::string_view kRecordEnd = ".record";
constexpr std::string_view kOldRecordEnd = ".json";  // of version 0.2.0: the text of a record
constexpr std::string_view kStateEnd = ".state";
constexpr std::string_view kServer = "server-";
constexpr std::string_view kListed = "listed-";
constexpr size_t kKeyLength = 64;
// Until a file is this old, it may belong to a running call, even if no record names it.
constexpr int64_t kOldMs = 3600 * 1000;

std::string record_name(const std::string& key) { return key + std::string(kRecordEnd); }

std::string old_record_name(const std::string& key) { return key + std::string(kOldRecordEnd); }

std::string state_name(const std::string& key, int64_t epoch) {
  return key + "." + std::to_string(epoch) + std::string(kStateEnd);
}

// The beginning of the names of a list's files. The key of a session and its id follow.
std::string list_prefix(const std::string& list) { return std::string(kListed) + list + "-"; }

std::string listed_name(const std::string& key, const Record& record) {
  return list_prefix(record.list) + key + "-" + record.id;
}

std::string server_name(const std::string& owner) {
  return std::string(kServer) + owner.substr(0, owner.find('/'));
}

// Returns bytes as one piece.
std::function<std::string()> once(std::string text) {
  return [text = std::move(text)]() mutable { return std::exchange(text, ""); };
}

}  // namespace

Result<std::unique_ptr<DirectoryStore>> DirectoryStore::open(const DirectoryOptions& options,
                                                             const Clock& clock) {
  std::string replica = new_replica();
  auto folder = Folder::open(options.folder, replica, options.disk);
  if (!folder.ok()) return folder.status();
  auto alive = folder->lock(server_name(replica), 0);
  if (!alive.ok()) return alive.status();
  return std::unique_ptr<DirectoryStore>(new DirectoryStore(
      options, std::move(replica), std::move(*folder), std::move(*alive), clock));
}

DirectoryStore::DirectoryStore(const DirectoryOptions& options, std::string replica, Folder folder,
                               OpenFile alive, const Clock& clock)
    : sync_(options.sync),
      times_(options.times),
      replica_(std::move(replica)),
      folder_(std::move(folder)),
      alive_(std::move(alive)),
      clock_(clock) {}

DirectoryStore::~DirectoryStore() { folder_.remove(server_name(replica_)); }

// --- Records ---

Result<OpenFile> DirectoryStore::lock(const std::string& key) const {
  return folder_.lock("lock-" + key.substr(0, 2), times_.timeout_ms);
}

// With the lock held, or DATA_LOSS may mean that another thread writes the record.
Result<DirectoryStore::Found> DirectoryStore::find(const std::string& key) const {
  const auto damaged = [](const std::string& name, const Status& status) {
    const bool is_damage = status.code() == Code::kDataLoss;
    return is_damage ? Status(Code::kDataLoss, name + ": " + status.message()) : status;
  };
  auto file = RecordFile::open(folder_, record_name(key));
  std::optional<std::string> old;
  if (file.ok() && !file->text()) {
    auto read = folder_.read(old_record_name(key), kMostRecordBytes);
    if (!read.ok()) return read.status();
    old = std::move(*read);
    // Without the lock, the record may have got its new file just before its old one was removed.
    if (!old) file = RecordFile::open(folder_, record_name(key));
  }
  if (!file.ok()) return damaged(record_name(key), file.status());
  Found found = {std::move(*file), {}};
  const bool has_old_form = !found.file.text();
  const std::optional<std::string>& text = has_old_form ? old : found.file.text();
  if (!text) return found;
  auto record = parse_record(*text, key);
  if (!record.ok()) {
    return damaged(has_old_form ? old_record_name(key) : record_name(key), record.status());
  }
  if (!has_expired(*record, clock_.unix_ms(), times_.ttl_ms)) found.record = std::move(*record);
  return found;
}

Result<std::optional<Record>> DirectoryStore::read(const std::string& key) const {
  auto found = find(key);
  if (found.status().code() == Code::kDataLoss) {
    const auto locked = lock(key);
    if (!locked.ok()) return locked.status();
    found = find(key);
  }
  return found.ok() ? Result<std::optional<Record>>(std::move(found->record)) : found.status();
}

// With the lock held since find(). The flag is set last, because a sync() that runs at the same
// time may miss the new bytes. This also covers the state of the record, which is written before.
Status DirectoryStore::write(const std::string& key, Found& found, bool durable) {
  const bool is_new = !found.file.text();
  Status written = found.file.write(folder_, record_text(*found.record, key), durable);
  if (written.ok() && is_new) folder_.remove(old_record_name(key));
  dirty_.store(true, std::memory_order_release);
  return written;
}

bool DirectoryStore::has_record(const std::string& key) const {
  const auto is_there = [&](const std::string& name) {
    return folder_.written_at(name) || errno != ENOENT;
  };
  return is_there(record_name(key)) || is_there(old_record_name(key));
}

// Removes the record, also one of version 0.2.0. If it returns false, there was none or it cannot
// be removed: errno says which.
bool DirectoryStore::remove_record(const std::string& key) const {
  const bool was_old = folder_.remove(old_record_name(key));
  return folder_.remove(record_name(key)) || (was_old && errno == ENOENT);
}

// Whether no call of `owner` can be running: this server begins only one call of a session at a
// time, and the process of another server holds a lock for as long as it lives.
bool DirectoryStore::is_dead(const std::string& owner) const {
  const std::string name = server_name(owner);
  return name == server_name(replica_) || !folder_.is_locked(name);
}

Result<Begun> DirectoryStore::begin(const std::string& key, const Claim& claim) {
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  auto found = find(key);
  if (!found.ok()) return found.status();
  if (!found->record) return Begun();
  Record& record = *found->record;
  const int64_t now = clock_.unix_ms();
  const bool dead = record.until > now && is_dead(record.owner);
  Begun begun = begin_record(record, claim, now, times_.lease_ms, dead);
  if (begun.outcome != FenceOutcome::kOk) return begun;
  if (Status s = write(key, *found, syncs_each()); !s.ok()) return s;
  return begun;
}

Result<std::optional<Record>> DirectoryStore::look(const std::string& key) { return read(key); }

// Applies `change` to the record, and writes the record if it returns true.
Result<bool> DirectoryStore::change_record(const std::string& key, const RecordChange& change) {
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  return change_locked(key, syncs_each(), change);
}

// The same, with the lock already held.
Result<bool> DirectoryStore::change_locked(const std::string& key, bool durable,
                                           const RecordChange& change) {
  auto found = find(key);
  if (!found.ok()) return found.status();
  if (!found->record || !change(*found->record)) return false;
  if (Status s = write(key, *found, durable); !s.ok()) return s;
  return true;
}

// The same with a new state. The state is written first, under a name that no record has yet. It is
// not written if the change would fail, nor over the state of a call that has ended. A call that
// was fenced off leaves the record unchanged. With `durable`, the new state and the record are on
// the disk before the former state is removed.
Result<bool> DirectoryStore::change_state(const std::string& key, int64_t epoch,
                                          const Snapshot& snapshot, bool durable,
                                          const RecordChange& change) {
  auto seen = read(key);
  if (!seen.ok()) return seen.status();
  if (!*seen || !change(**seen)) return false;
  const auto written = write_state(key, snapshot, durable);
  if (!written.ok()) return written.status();
  if (Status s = name_state(*written, key, epoch, durable); !s.ok()) return s;
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  int64_t old = 0;
  const Result<bool> changed = change_locked(key, durable, [&](Record& record) {
    if (!change(record)) return false;
    old = record.state;
    put_state(record, epoch, snapshot.position, written->tail);
    return true;
  });
  if (!changed.ok() || !*changed) {
    remove_unused(key, epoch);
  } else if (old != 0 && old != epoch) {
    folder_.remove(state_name(key, old));
  }
  return changed;
}

Result<bool> DirectoryStore::renew(const std::string& key, const Holder& holder) {
  return change_record(key, [&](Record& record) {
    return renew_record(record, holder, clock_.unix_ms(), times_.lease_ms);
  });
}

Result<bool> DirectoryStore::end(const std::string& key, const Holder& holder,
                                 const Snapshot* snapshot) {
  const auto end = [&](Record& record) {
    return end_record(record, holder, clock_.unix_ms(), snapshot != nullptr);
  };
  if (snapshot == nullptr) return change_record(key, end);
  return change_state(key, holder.epoch, *snapshot, syncs_each(), end);
}

Result<bool> DirectoryStore::log(const std::string& key, const Holder& holder,
                                 const LogEntry& entry) {
  return change_record(
      key, [&](Record& record) { return log_record(record, holder, clock_.unix_ms(), entry); });
}

// With kInterval, the session may have been on the disk for a long time, so it must not come to
// depend on bytes that are not on the disk yet.
Result<bool> DirectoryStore::settle(const std::string& key, int64_t saved,
                                    const Snapshot& snapshot) {
  return change_state(key, saved, snapshot, sync_ != SyncMode::kNone,
                      [&](const Record& record) { return may_settle(record, saved); });
}

// The state is written to a temporary file before the lock is taken, because writing may be slow
// and others need the lock. The file gets its name under the lock, when the epoch is known.
Result<int64_t> DirectoryStore::create(const std::string& key, const NewSession& session,
                                       const Snapshot* snapshot) {
  WrittenState written;
  if (snapshot != nullptr) {
    const auto seen = read(key);
    if (!seen.ok()) return seen.status();
    if (*seen) return 0;
    auto state = write_state(key, *snapshot, syncs_each());
    if (!state.ok()) return state.status();
    written = std::move(*state);
  }
  auto epoch = create_record(key, session, snapshot, written);
  if (!written.file.empty()) folder_.remove(written.file);  // unless it has its final name by now
  return epoch;
}

Result<int64_t> DirectoryStore::create_record(const std::string& key, const NewSession& session,
                                              const Snapshot* snapshot,
                                              const WrittenState& written) {
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  auto found = find(key);
  if (!found.ok()) return found.status();
  if (found->record) return 0;
  Record& record = found->record.emplace(new_record(session, clock_.unix_ms()));
  if (snapshot != nullptr) {
    if (Status s = name_state(written, key, record.epoch, syncs_each()); !s.ok()) return s;
    put_state(record, record.epoch, snapshot->position, written.tail);
  }
  // If an expired record has left its file, the new record is written in place, which syncs no
  // names. Then the name of the file in the list must be synced separately.
  Status status = add_to_list(key, record, syncs_each() && found->file.text());
  if (status.ok()) status = write(key, *found, syncs_each());
  if (status.ok()) return record.epoch;
  remove_unused(key, record.epoch);
  const auto left = find(key);  // it may exist without its name being durable
  if (left.ok() && !left->record) remove_from_list(key, record);
  return status;
}

// With the lock held. The file is empty. Without `durable`, its name becomes durable together with
// that of a new record.
Status DirectoryStore::add_to_list(const std::string& key, const Record& record, bool durable) {
  if (record.list.empty()) return {};
  const auto file = folder_.write_temporary(key, once(""), false);
  if (!file.ok()) return file.status();
  return folder_.rename(*file, listed_name(key, record), durable);
}

void DirectoryStore::remove_from_list(const std::string& key, const Record& record) const {
  if (!record.list.empty()) folder_.remove(listed_name(key, record));
}

Result<std::vector<std::string>> DirectoryStore::list(const std::string& list,
                                                      const std::string& after, size_t most) {
  const std::string prefix = list_prefix(list);
  const size_t start = prefix.size() + kKeyLength + 1;  // where the id starts
  std::vector<std::string> ids;
  const Status status = folder_.each([&](std::string_view name) {
    if (!name.starts_with(prefix) || name.size() <= start) return;
    const std::string_view id = name.substr(start);
    if (id <= after || !is_listed_id(id)) return;
    ids.emplace_back(id);
    if (ids.size() >= 2 * (most + 1)) keep_first(ids, most);
  });
  if (!status.ok()) return status;
  keep_first(ids, most);
  return ids;
}

// With the lock held: removes a state, unless the record names it. A full disk must not get fuller
// with each call that cannot be saved.
void DirectoryStore::remove_unused(const std::string& key, int64_t epoch) const {
  const auto found = find(key);
  if (found.ok() && !(found->record && found->record->state == epoch)) {
    folder_.remove(state_name(key, epoch));
  }
}

// An unreadable record is deleted as well. sweep() finds its state and its place in a list.
Result<bool> DirectoryStore::remove(const std::string& key) {
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  const auto found = find(key);
  const bool is_there = !found.ok() || found->record;
  if (!remove_record(key) && is_there) {
    return Status(Code::kUnavailable,
                  "cannot delete " + record_name(key) + ": " + std::strerror(errno));
  }
  if (found.ok() && found->record) {
    folder_.remove(state_name(key, found->record->state));
    remove_from_list(key, *found->record);
  }
  dirty_.store(true, std::memory_order_release);
  if (syncs_each()) {
    if (Status s = folder_.sync_names(); !s.ok()) return s;
  }
  return is_there;
}

// --- States ---

Result<DirectoryStore::WrittenState> DirectoryStore::write_state(const std::string& key,
                                                                 const Snapshot& snapshot,
                                                                 bool durable) {
  std::string last;
  const auto next = [&] {
    std::string piece = snapshot.next();
    keep_tail(last, piece);
    return piece;
  };
  auto file = folder_.write_temporary(key, next, durable);
  if (!file.ok()) return file.status();
  return WrittenState{std::move(*file), tail_of(last)};
}

Status DirectoryStore::name_state(const WrittenState& written, const std::string& key,
                                  int64_t epoch, bool durable) {
  return folder_.rename(written.file, state_name(key, epoch), durable);
}

Status DirectoryStore::load(const std::string& key, const Record& record, const StateSink& sink) {
  const std::string name = state_name(key, record.state);
  const auto file = folder_.open_file(name);
  if (!file.ok()) {
    return file.status().code() == Code::kNotFound ? state_replaced() : file.status();
  }
  std::string last;
  const Status status = folder_.read_pieces(*file, [&](std::span<const std::byte> piece) {
    keep_tail(last, {reinterpret_cast<const char*>(piece.data()), piece.size()});
    return sink(piece);
  });
  if (!status.ok()) return status;
  if (tail_of(last) == record.tail) return {};
  return {Code::kDataLoss, name + " is not the state that was saved"};
}

// --- Upkeep ---

bool DirectoryStore::is_old(const std::string& name) const {
  const auto written = folder_.written_at(name);
  return written && clock_.unix_ms() - *written > kOldMs;
}

Status DirectoryStore::sweep() {
  const auto names = folder_.list();
  if (!names.ok()) return names.status();
  Status first;
  std::vector<std::string> listed;
  for (const std::string& name : *names) {
    Status status;
    if (name.find('~') != name.npos) {
      if (is_old(name)) folder_.remove(name);
    } else if (name.starts_with(kServer)) {
      if (is_old(name) && !folder_.is_locked(name)) folder_.remove(name);
    } else if (name.starts_with(kListed)) {
      listed.push_back(name);
    } else if (name.ends_with(kStateEnd)) {
      status = sweep_state(name);
    } else if (name.ends_with(kRecordEnd)) {
      status = sweep_record(name.substr(0, name.size() - kRecordEnd.size()));
    } else if (name.ends_with(kOldRecordEnd)) {
      status = sweep_record(name.substr(0, name.size() - kOldRecordEnd.size()));
    }
    if (first.ok()) first = status;
  }
  for (const std::string& name : listed) {  // after expired sessions were removed
    const Status status = sweep_listed(name);
    if (first.ok()) first = status;
  }
  return first;
}

// Deletes an expired session. An unreadable record stays, so that people can examine it.
Status DirectoryStore::sweep_record(const std::string& key) {
  if (!is_record_key(key)) return {};
  const auto seen = read(key);
  if (!seen.ok() || *seen) return {};
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  const auto found = find(key);
  if (found.ok() && !found->record) remove_record(key);
  return {};
}

// Deletes a state that no record names.
Status DirectoryStore::sweep_state(const std::string& name) {
  const std::string key = name.substr(0, kKeyLength);
  if (!is_record_key(key) || !is_old(name)) return {};
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  const auto found = find(key);
  if (!found.ok()) return {};
  if (!found->record || state_name(key, found->record->state) != name) folder_.remove(name);
  return {};
}

// Deletes a session's place in a list after the session is gone.
Status DirectoryStore::sweep_listed(const std::string& name) {
  const size_t start = list_prefix(std::string(kListNameLength, '0')).size();
  const std::string key = name.size() < start ? "" : name.substr(start, kKeyLength);
  if (!is_record_key(key)) return {};
  if (has_record(key)) return {};
  const auto locked = lock(key);
  if (!locked.ok()) return locked.status();
  if (!has_record(key)) folder_.remove(name);
  return {};
}

// After a failure the next call tries again, even if nothing is written until then.
Status DirectoryStore::sync() {
  if (sync_ != SyncMode::kInterval || !dirty_.exchange(false)) return {};
  Status synced = folder_.sync_all();
  if (!synced.ok()) dirty_.store(true, std::memory_order_release);
  return synced;
}

}  // namespace runnel
