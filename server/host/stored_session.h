// The use of one session of a store by one call (docs/decisions/storage.md). It brings the engine's
// copy of the session up to date before the call, and saves the session after the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/call_record.h"
#include "engine/engine.h"
#include "server/host/call_log.h"
#include "server/host/memory_budget.h"
#include "server/host/replay.h"
#include "server/host/served_models.h"
#include "server/host/server_context.h"
#include "storage/store.h"
#include "storage/store_threads.h"

namespace runnel {

class KeptSessions;

// How a call uses a session.
struct SessionUse {
  std::string id;
  bool changes = false;         // false: the call only reads the session
  std::string_view field = {};  // the field that names the session (base/fields.h); empty: kSession
  std::string request = {};     // Claim::request
  std::string digest = {};      // of the whole request
  uint64_t seed = 0;            // Claim::seed
  bool is_seed_given = false;   // Claim::is_seed_given
  std::optional<int64_t> expected_position = {};
  bool after_cut_off = false;  // Claim::after_cut_off
  // Ends the call, because another server has the session now, or the call was retried. Called on
  // any thread.
  std::function<void(const Status&)> on_lost = {};
};

// The status of a call that reads an open session. If `status` is NOT_FOUND, the engine has evicted
// the session for another one, and the result is ABORTED, so that the client tries again.
Status unless_given_up(Status status);

// The steps of opening and saving call each other through callbacks of the engine or of the store's
// threads, so no step blocks.
class StoredSession : public std::enable_shared_from_this<StoredSession> {
 public:
  using Done = std::function<void(const Status&)>;

  // `kept` must outlive the model.
  StoredSession(KeptSessions& kept, std::shared_ptr<const ServedModel> model, Caller caller,
                SessionUse use);
  StoredSession(const StoredSession&) = delete;
  StoredSession& operator=(const StoredSession&) = delete;
  // The destructor releases the session for other calls if no step has done so:
  // - A step has failed because there was no memory. The destructor also calls the callback that
  //   waits for the step.
  // - The store has answered open() only after the call had given up.
  ~StoredSession();

  const std::string& key() const { return key_; }
  const std::string& id() const { return use_.id; }
  bool changes() const { return use_.changes; }
  // To be called after open(). Gives the engine's request the seed of an earlier try that was cut
  // off, or the answer of an earlier try that was saved.
  void prepare(GenerateRequest& request) const;

  // Brings the engine's copy up to date, and begins the call in the store if it changes the
  // session. ABORTED if the fence refuses; UNAVAILABLE, DATA_LOSS, errors of
  // Engine::import_session(). If there is no record, the engine has no copy afterwards, and a call
  // that only reads gets NOT_FOUND. The engine may evict the copy of a session that is only read:
  // see unless_given_up().
  void open(Done done);
  // To be called instead of open() if the engine has just made the session. `empty`: it has no
  // values. RESOURCE_EXHAUSTED.
  Status adopt(bool empty);

  // To be called after open(), when no call runs on the session in the engine. Saves the session,
  // and ends the call in the store. If that fails, the engine's copy is deleted, because it is
  // ahead of the store. ABORTED: another server has the session now. `call`: the call that has run,
  // if it can be computed again. The session's log may then get the call, and no state is written.
  void save(Done done, const std::optional<LoggedCall>& call = {});
  // To be called if the call has ended without save(). Saves the session if it has changed.
  void end_unheard();
  // Extends the lease, if the call has one and has not ended.
  void renew();
  // Whether this call is a retry of the call of `other`.
  bool repeats(const StoredSession& other) const;
  // Ends the call, because it was retried.
  void give_way() const;

 private:
  enum class Stage { kOpening, kOpen, kLost, kEnding, kEnded };
  // A session that was read from the store.
  struct Stored {
    std::shared_ptr<StateImage> image;  // null: the session was empty
    std::shared_ptr<Replay> replay;     // null: there is no log
  };

  SessionKey session() const { return {caller_.name, use_.id}; }
  Status take_room(int64_t beside);
  void look();
  void take_begun(const Result<Begun>& begun);
  void hold(int64_t epoch);
  void check_copy();
  void drop_copy(Done done);
  void load();
  Result<Stored> read_stored(const StoreThreads::Progress& progress) const;
  Result<StateImage> read_state(const StoreThreads::Progress& progress) const;
  void take_made(const Status& made, const std::shared_ptr<Replay>& replay);
  void give_up(const Status& status);
  Status missing() const;
  void finish_opening(const Status& status);
  Holder holder(bool has_run) const;
  bool begin_ending();
  void end_if_unchanged();
  std::optional<LogEntry> entry_of(const std::optional<LoggedCall>& call);
  void log(LogEntry entry);
  void make_image();
  void export_state();
  void take_exported(const Status& status);
  Result<int64_t> write_state(StateImage image, const Holder& holder,
                              const StoreThreads::Progress& progress) const;
  void take_saved(const Result<int64_t>& saved);
  void end_unsaved(const Status& status);
  void finish(const Status& status);
  void lose();

  KeptSessions& kept_;
  const std::shared_ptr<const ServedModel> model_;
  const Caller caller_;
  const SessionUse use_;
  const std::string key_;    // of the record
  const std::string owner_;  // Claim::owner
  const std::shared_ptr<StoredCall> call_ = std::make_shared<StoredCall>();

  // Only one step at a time uses these.
  Done opened_, saved_;
  Record record_;          // before the call; without log and answer once the session is open
  int64_t log_bytes_ = 0;  // bytes of that log
  size_t log_calls_ = 0;   // entries of that log
  int64_t epoch_ = 0;      // of the call; 0: the session has no record yet, or the call only reads.
                           // renew() reads it with mutex_ held
  uint64_t seed_ = 0;
  bool repeats_ = false;  // the call has already been saved
  bool empty_ = false;
  bool is_replay_ = false;  // the engine's copy was made by a replay of the log
  bool is_logged_ = false;  // the call was logged, and no state is written
  SnapshotReason reason_ = SnapshotReason::kCall;
  int64_t position_ = 0;  // the position of the session that is saved
  int tries_ = 0;
  std::shared_ptr<StateImage> image_;
  // The memory of image_ and one piece of it. Null after the end. A job has it, too, while it works
  // on a state, because a job that takes too long runs on after the end.
  std::shared_ptr<MemoryBudget::Hold> room_ = std::make_shared<MemoryBudget::Hold>();

  std::atomic<bool> begins_{false};  // the store has not answered open()
  std::mutex mutex_;
  // With mutex_ held.
  Stage stage_ = Stage::kOpening;
  TimePoint renewed_{};  // when the lease last began, by the server's clock
};

}  // namespace runnel
