// Sessions that outlive their server, and move between servers (docs/fleet.md). It knows which
// sessions a call of this server has open in the store, and renews their leases.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/host/resting_logs.h"
#include "server/host/server_context.h"
#include "server/host/stored_session.h"
#include "server/host/task_thread.h"
#include "storage/store.h"
#include "storage/store_threads.h"

namespace runnel {

struct StorageOptions {
  std::string url = {};            // StoreSettings; empty: sessions end with the process
  std::string sync = "each";       // likewise
  std::string password_file = {};  // likewise
  std::string ca = {};             // likewise
  StoreTimes times = {.ttl_ms = 604800000, .lease_ms = 5000, .timeout_ms = 1000};
  int64_t log_bytes = 65536;          // of a session's log; 0: a state after each call
  int64_t answer_bytes = 65536;       // of the values of a session's last call; 0: none are kept
  std::shared_ptr<Store> store = {};  // in place of that of `url`, for tests
};

class KeptSessions {
 public:
  static constexpr int kThreads = 4;                // that work on the store
  static constexpr int kAllThreads = kThreads + 3;  // and replays(), logs(), and a HostLookup

  // An open session, which is the call's until this is let go of or the session was saved. Null for
  // a call that only reads.
  using OpenDone = std::function<void(Result<std::shared_ptr<StoredSession>>)>;

  // `context` outlives it.
  KeptSessions(ServerContext& context, std::shared_ptr<Store> store, const StorageOptions& options);
  KeptSessions(const KeptSessions&) = delete;
  KeptSessions& operator=(const KeptSessions&) = delete;
  ~KeptSessions();

  // StoredSession::open(). ABORTED, too, while another call of this server changes the session,
  // unless this is that call made again, which ends the earlier try. A call that reads then finds
  // the session as the other call has it.
  void open(std::shared_ptr<const ServedModel> model, const Caller& caller, SessionUse use,
            OpenDone done);
  // StoredSession::adopt(). ABORTED if a call has a session of this name open.
  Result<std::shared_ptr<StoredSession>> adopt(std::shared_ptr<const ServedModel> model,
                                               const Caller& caller, const std::string& id,
                                               bool empty);
  // Deletes a session in the engine and in the store, whoever uses it. NOT_FOUND.
  void remove(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
              const std::string& id, const std::function<void(Status)>& done);
  // A session as it is now, also where the engine does not have it. NOT_FOUND.
  void find(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
            const std::string& id, const std::function<void(Result<SessionInfo>)>& done);

  // As Engine::list_sessions(), with the sessions that are in the store and not in the engine.
  // UNAVAILABLE if the store does not answer.
  void list(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
            const std::string& after, int count,
            const std::function<void(Result<SessionPage>)>& done);

  // To be called about once a second, by one thread: renews leases, has the store make durable what
  // it has written and remove what has expired, and ends waits that are too long.
  void tend();
  // Waits until no session is open any more, for at most `at_most`. True when none is.
  bool wait_until_saved(Duration at_most);
  // Waits until no thread works on the store, for at most twice `at_most`. True when none does.
  bool wait_until_idle(Duration at_most);
  // Sessions at rest whose last calls are in a log.
  RestingLogs& logs() { return logs_; }

  // --- For StoredSession ---

  Store& store() { return *store_; }
  StoreThreads& threads() { return threads_; }
  Duration lease() const { return lease_; }
  // Follows replays. At most one task for each session that is loaded.
  TaskThread& replays() { return replays_; }
  int64_t log_bytes() const { return log_bytes_; }
  int64_t answer_bytes() const { return answer_bytes_; }
  // The copy of a session that an engine was last given, or that was saved last. A model that has
  // ended, or whose engine has let go of the session since, has none any more.
  struct Copy {
    std::weak_ptr<const ServedModel> model = {};  // null: nobody knows what the engine has
    int64_t saved = 0;                            // Record::saved
    bool is_ours = false;  // saved by this server, so that the engine can answer a retry
  };
  Copy copy_of(const std::string& key);
  void note_copy(const std::string& key, const Copy& copy);
  ServerContext& context() { return context_; }
  // Calls that want the session may wait for it from here on.
  void ends_soon(const StoredSession& session);
  // Nobody has the session any more.
  void release(const StoredSession& session);
  void count_error();
  // The status of a call for which the store has not done something, which is counted.
  Status failed(Status status);
  void count_snapshot(SnapshotReason reason);
  // Whether no call of this server has the session open.
  bool rests(const std::string& key);
  void log_unsaved(const std::string& session, const Status& status);

 private:
  // A session that a call has open. The call keeps it alive, or whatever the call waits for.
  struct Use {
    void take(const std::shared_ptr<StoredSession>& one) {
      session = one;
      by = one.get();
    }

    std::weak_ptr<StoredSession> session;
    const StoredSession* by = nullptr;          // the same, also while it ends
    bool is_brief = false;                      // others may wait for it
    bool is_opening = false;                    // calls that only read may wait
    std::deque<std::function<void()>> waiting;  // for it
  };

  SessionInfo merged(const SessionKey& session, const std::string& owner, const SessionInfo* here,
                     const Record& record) const;
  Result<SessionPage> page_of(const ServedModel& model, const std::string& caller,
                              const std::string& after, size_t count, const SessionPage& here);
  void enter(const std::shared_ptr<StoredSession>& session, const OpenDone& done);
  void end_opening(const StoredSession& session);
  void sweep();

  ServerContext& context_;
  const std::shared_ptr<Store> store_;
  const Duration lease_;
  const int64_t log_bytes_;
  const int64_t answer_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Use> uses_;     // by key
  std::map<std::string, Copy> copies_;  // likewise
  TimePoint swept_;
  std::atomic<bool> syncing_{false};
  RestingLogs logs_{*this};
  StoreThreads threads_;  // ends before the rest
  TaskThread replays_;    // ends first
};

}  // namespace runnel
