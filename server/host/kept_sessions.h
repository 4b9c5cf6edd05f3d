// Sessions in a store, which outlive their server and move between servers (docs/fleet.md). This
// class knows which sessions the calls of this server have open in the store, and renews their
// leases.
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
#include "storage/open_store.h"
#include "storage/store.h"
#include "storage/store_threads.h"

namespace runnel {

struct StorageOptions {
  StoreSettings settings = {};        // without a URL, sessions end with the process
  int64_t log_bytes = 65536;          // the most bytes of a session's log; 0: no log
  int64_t answer_bytes = 65536;       // the most bytes of an answer; 0: answers are not kept
  std::shared_ptr<Store> store = {};  // used instead of `settings`, for tests
};

class KeptSessions {
 public:
  // Threads that use the store: three for states, one each for a list, a sweep and a sync, and one
  // for short jobs.
  static constexpr int kThreads = 7;
  // With the threads of replays(), logs(), and a HostLookup.
  static constexpr int kAllThreads = kThreads + 3;

  // Called with an open session. The call has the session until it releases the pointer, or the
  // session was saved. Null for a call that only reads.
  using OpenDone = std::function<void(Result<std::shared_ptr<StoredSession>>)>;

  // `context` must outlive the object.
  KeptSessions(ServerContext& context, std::shared_ptr<Store> store, const StorageOptions& options);
  KeptSessions(const KeptSessions&) = delete;
  KeptSessions& operator=(const KeptSessions&) = delete;
  ~KeptSessions();

  // StoredSession::open(). Also ABORTED while another call of this server changes the session. A
  // retry of that call is not refused, but ends the earlier try. A call that only reads gets the
  // session in the present state of the other call. UNAVAILABLE while the store works on the
  // beginning of a call that has given up.
  void open(std::shared_ptr<const ServedModel> model, const Caller& caller, SessionUse use,
            OpenDone done);
  // StoredSession::adopt(). ABORTED if a call has a session of this name open.
  Result<std::shared_ptr<StoredSession>> adopt(std::shared_ptr<const ServedModel> model,
                                               const Caller& caller, const std::string& id,
                                               bool empty);
  // Deletes a session in the engine and in the store, even if a call uses it. NOT_FOUND.
  void remove(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
              const std::string& id, const std::function<void(Status)>& done);
  // The present session, even if the engine does not have it. NOT_FOUND.
  void find(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
            const std::string& id, const std::function<void(Result<SessionInfo>)>& done);

  // As Engine::list_sessions(), with the sessions that are in the store and not in the engine. A
  // page has at most 100 sessions. UNAVAILABLE if the store does not answer.
  void list(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
            const std::string& after, int most,
            const std::function<void(Result<SessionPage>)>& done);

  // To be called about once a second, by one thread. Renews leases, calls Store::sync() and
  // Store::sweep(), and ends waits that are too long.
  void tend();
  // Waits until no call has a session open, for at most `at_most`. Returns true if none has.
  bool wait_until_saved(Duration at_most);
  // Waits until no thread works on the store, for at most twice `at_most`. Returns true if none
  // does.
  bool wait_until_idle(Duration at_most);
  // Sessions at rest whose last calls are in a log.
  RestingLogs& logs() { return logs_; }

  // --- For StoredSession ---

  Store& store() { return *store_; }
  StoreThreads& threads() { return threads_; }
  Duration lease() const { return lease_; }
  // The thread of replays. It gets at most one task for each session that is being loaded.
  TaskThread& replays() { return replays_; }
  int64_t log_bytes() const { return log_bytes_; }
  int64_t answer_bytes() const { return answer_bytes_; }
  // The copy of a session that an engine last got, or that was saved last. If the model has ended,
  // or its engine has given up the session since, there is no copy any more.
  struct Copy {
    std::weak_ptr<const ServedModel> model = {};  // null: it is unknown which copy the engine has
    int64_t saved = 0;                            // Record::saved
    bool is_ours = false;  // saved by this server, so that the engine can answer a retry
  };
  Copy copy_of(const std::string& key);
  void note_copy(const std::string& key, const Copy& copy);
  ServerContext& context() { return context_; }
  // From now on other calls may wait for the session.
  void ends_soon(const StoredSession& session);
  // The call has ended, but the store still works on its beginning. Until release(), other calls
  // are refused, because the late beginning would take the session from them.
  void begins_late(const StoredSession& session);
  // No call has the session any more.
  void release(const StoredSession& session);
  void count_error();
  // Counts an error of the store. Returns the status for the call.
  Status failed(Status status);
  void count_snapshot(SnapshotReason reason);
  // Whether no call of this server has the session open.
  bool rests(const std::string& key);
  void log_unsaved(const std::string& session, const Status& status);

 private:
  // A session that a call has open. The call, or the operation that it waits for, keeps it alive.
  struct Use {
    void take(const std::shared_ptr<StoredSession>& one) {
      session = one;
      by = one.get();
    }

    std::weak_ptr<StoredSession> session;
    const StoredSession* by = nullptr;          // the same object, also while its destructor runs
    bool is_brief = false;                      // other calls may wait for it
    bool is_opening = false;                    // calls that only read may wait for it
    bool is_late = false;                       // begins_late()
    std::deque<std::function<void()>> waiting;  // the calls that wait for it
  };

  SessionInfo merged(const SessionKey& session, const std::string& owner, const SessionInfo* here,
                     const Record& record) const;
  Result<SessionPage> page_of(const ServedModel& model, const std::string& caller,
                              const std::string& after, size_t count, const SessionPage& here);
  bool none_open() const;
  void enter(const std::shared_ptr<StoredSession>& session, const OpenDone& done);
  void end_opening(const StoredSession& session);
  void change(const StoredSession& session, const std::function<void(Use&)>& by);
  void sweep();

  ServerContext& context_;
  const std::shared_ptr<Store> store_;
  const Duration lease_;
  const int64_t log_bytes_;
  const int64_t answer_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Use> uses_;     // by key
  std::map<std::string, Copy> copies_;  // by key
  TimePoint swept_;
  std::atomic<bool> syncing_{false}, sweeping_{false};
  RestingLogs logs_{*this};
  StoreThreads threads_;  // destroyed before the members above
  TaskThread replays_;    // destroyed first
};

}  // namespace runnel
