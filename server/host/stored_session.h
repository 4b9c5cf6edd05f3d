// One session of a store in the hands of one call (docs/decisions/storage.md). It makes the
// engine's copy of the session current before the call, and saves it after the call.
#pragma once

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

namespace runnel {

class KeptSessions;

// The use that a call makes of a session.
struct SessionUse {
  std::string id;
  bool changes = false;         // else the call only reads the session
  std::string_view field = {};  // that names the session (base/fields.h); empty: kSession
  std::string request = {};     // Claim::request
  std::string digest = {};      // of all that the call asks for
  uint64_t seed = 0;            // Claim::seed
  std::optional<int64_t> expected_position = {};
  bool after_cut_off = false;  // Claim::after_cut_off
  // Ends the call, from any thread: another server has the session now, or the call was made again.
  std::function<void(const Status&)> on_lost = {};
};

// Bytes of memory that it takes to save a state of the engine's.
int64_t bytes_to_save(const Engine& engine);

// Hands `image` to `save` as a state file, sealed if the server has a key.
using SaveSnapshot = std::function<Result<int64_t>(const Snapshot&)>;
Result<int64_t> save_file(const ServerContext& context, const ServedModel& model,
                          const std::string& owner, StateImage image, const SaveSnapshot& save);

// The status of a call that reads a session which was open: where the engine has given the session
// up for another one, the call is to be made again. ABORTED in place of NOT_FOUND.
Status unless_given_up(Status status);

// Each step hands over to the next by a callback of the engine or of the store's threads, so none
// blocks.
class StoredSession : public std::enable_shared_from_this<StoredSession> {
 public:
  using Done = std::function<void(const Status&)>;

  // `kept` outlives the model.
  StoredSession(KeptSessions& kept, std::shared_ptr<const ServedModel> model, Caller caller,
                SessionUse use);
  StoredSession(const StoredSession&) = delete;
  StoredSession& operator=(const StoredSession&) = delete;
  // Where memory has given out in a step, so that none follows: lets others have the session, and
  // tells whoever waits.
  ~StoredSession();

  const std::string& key() const { return key_; }
  const std::string& id() const { return use_.id; }
  bool changes() const { return use_.changes; }
  // After open(): gives the engine's request the seed of an earlier try that was cut off, and the
  // answer to one that was saved.
  void prepare(GenerateRequest& request) const;

  // Makes the engine's copy current, and begins the call if it changes the session. ABORTED if the
  // fence does not let it; UNAVAILABLE, DATA_LOSS, errors of Engine::import_session(). Without a
  // record the engine has no copy afterwards, and a call that only reads gets NOT_FOUND. The
  // engine may give up the copy of a session that is only read: unless_given_up().
  void open(Done done);
  // In place of open(): the engine has just made the session. `empty`: it has no values.
  // RESOURCE_EXHAUSTED.
  Status adopt(bool empty);

  // After open(), when no call runs on the session in the engine: saves it, and ends the call in
  // the store. If that is not possible the engine's copy is deleted, because it is ahead of the
  // store. ABORTED: another server has the session now. `call`: the one that has run, if it can be
  // computed again; the session's log may then get it, and no state is written.
  void save(Done done, const std::optional<LoggedCall>& call = {});
  // The call is over without save(): saves the session if it has changed, and tells nobody.
  void end_unheard();
  // Extends the lease, from when the call has one until it is over.
  void renew();
  // Whether this is the call of `other`, made again.
  bool repeats(const StoredSession& other) const;
  // The call was made again: ends it.
  void give_way() const;

 private:
  enum class Stage { kOpening, kOpen, kLost, kEnding, kEnded };
  // A session as the store has it.
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
  Result<Stored> read_stored() const;
  Result<StateImage> read_state() const;
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
  Result<int64_t> write_state(StateImage image, const Holder& holder) const;
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

  // Each step has them in turn.
  Done opened_, saved_;
  Record record_;          // before the call; once the session is open, without log and answer
  int64_t log_bytes_ = 0;  // of that log
  size_t log_calls_ = 0;
  int64_t epoch_ = 0;  // of the call; 0: the session has no record yet, or the call only reads.
                       // renew() reads it with mutex_ held
  uint64_t seed_ = 0;
  bool repeats_ = false;  // the call was saved already
  bool empty_ = false;
  bool is_replay_ = false;  // the engine's copy was made by a replay of the log
  bool is_logged_ = false;  // the call, in place of a state
  SnapshotReason reason_ = SnapshotReason::kCall;
  int64_t position_ = 0;  // of the session that is saved
  int tries_ = 0;
  std::shared_ptr<StateImage> image_;
  MemoryBudget::Hold room_;  // of image_ and a piece

  std::mutex mutex_;
  // With mutex_ held.
  Stage stage_ = Stage::kOpening;
  TimePoint renewed_{};  // when the lease last began, by the server's clock
};

}  // namespace runnel
