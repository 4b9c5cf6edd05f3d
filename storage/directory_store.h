// A store in a directory, which several servers may share, also over NFSv4. A session KEY has a
// record KEY.record (record_file.h), a state KEY.EPOCH.state, and an empty file listed-LIST-KEY-ID.
// A record is changed under one of 256 lock files. Each server also holds the lock of its own file
// while it runs, so that other servers notice when it has died.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/folder.h"
#include "storage/record_file.h"
#include "storage/store.h"

namespace runnel {

// When the state of a call is on the disk: at an unknown time, within about a second, or before the
// call ends.
enum class SyncMode { kNone, kInterval, kEach };

struct DirectoryOptions {
  std::string folder;
  SyncMode sync = SyncMode::kEach;
  StoreTimes times;
  DiskCalls disk = DiskCalls::system();
};

class DirectoryStore final : public Store {
 public:
  // `clock` must outlive the store. Errors of Folder::open(), and UNAVAILABLE if the folder cannot
  // be written to or has no locks.
  static Result<std::unique_ptr<DirectoryStore>> open(const DirectoryOptions& options,
                                                      const Clock& clock);
  ~DirectoryStore() override;

  const std::string& replica() const override { return replica_; }
  Result<Begun> begin(const std::string& key, const Claim& claim) override;
  Result<std::optional<Record>> look(const std::string& key) override;
  Status load(const std::string& key, const Record& record, const StateSink& sink) override;
  Result<bool> renew(const std::string& key, const Holder& holder) override;
  Result<bool> end(const std::string& key, const Holder& holder, const Snapshot* snapshot) override;
  Result<bool> log(const std::string& key, const Holder& holder, const LogEntry& entry) override;
  Result<bool> settle(const std::string& key, int64_t saved, const Snapshot& snapshot) override;
  Result<int64_t> create(const std::string& key, const NewSession& session,
                         const Snapshot* snapshot) override;
  Result<bool> remove(const std::string& key) override;
  Result<std::vector<std::string>> list(const std::string& list, const std::string& after,
                                        size_t most) override;
  Status sweep() override;
  Status sync() override;

 private:
  DirectoryStore(const DirectoryOptions& options, std::string replica, Folder folder,
                 OpenFile alive, const Clock& clock);

  bool syncs_each() const { return sync_ == SyncMode::kEach; }
  Result<OpenFile> lock(const std::string& key) const;
  // A record with its file, to be read with the lock held and then written.
  struct Found {
    RecordFile file;
    std::optional<Record> record;
  };
  Result<Found> find(const std::string& key) const;
  Result<std::optional<Record>> read(const std::string& key) const;
  Status write(const std::string& key, Found& found, bool durable);
  using RecordChange = std::function<bool(Record&)>;
  Result<bool> change_record(const std::string& key, const RecordChange& change);
  Result<bool> change_locked(const std::string& key, bool durable, const RecordChange& change);
  Result<bool> change_state(const std::string& key, int64_t epoch, const Snapshot& snapshot,
                            bool durable, const RecordChange& change);
  // A state in a temporary file, and its tail (Record::tail).
  struct WrittenState {
    std::string file;
    std::string tail;
  };
  Result<WrittenState> write_state(const std::string& key, const Snapshot& snapshot, bool durable);
  Status name_state(const WrittenState& written, const std::string& key, int64_t epoch,
                    bool durable);
  Result<int64_t> create_record(const std::string& key, const NewSession& session,
                                const Snapshot* snapshot, const WrittenState& written);
  bool has_record(const std::string& key) const;
  bool remove_record(const std::string& key) const;
  void remove_unused(const std::string& key, int64_t epoch) const;
  Status add_to_list(const std::string& key, const Record& record, bool durable);
  void remove_from_list(const std::string& key, const Record& record) const;
  bool is_dead(const std::string& owner) const;
  bool is_old(const std::string& name) const;
  Status sweep_record(const std::string& key);
  Status sweep_state(const std::string& name);
  Status sweep_listed(const std::string& name);

  const SyncMode sync_;
  const StoreTimes times_;
  const std::string replica_;
  Folder folder_;
  const OpenFile alive_;  // locked
  const Clock& clock_;
  // Something was written since the last sync() began, or that sync() failed. At first, a server
  // that was killed may have written something.
  std::atomic<bool> dirty_{true};
};

}  // namespace runnel
