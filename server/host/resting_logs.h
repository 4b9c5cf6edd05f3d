// Sessions at rest whose last calls are in a log. After a second at rest, the state of such a
// session replaces its log in the store, so that few loads must replay a log. A thread writes one
// state after the other, and calls do not wait for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "server/host/served_models.h"

namespace runnel {

class KeptSessions;

// A session after a call that was logged.
struct LoggedSession {
  std::string key;  // of the record
  SessionKey session;
  std::weak_ptr<const ServedModel> model;
  int64_t saved = 0;  // Record::saved
  int64_t position = 0;
};

// Any thread may call any function. Only the functions named wait_... block.
class RestingLogs {
 public:
  // `kept` must outlive the object. Its constructor may still run.
  explicit RestingLogs(KeptSessions& kept);
  RestingLogs(const RestingLogs&) = delete;
  RestingLogs& operator=(const RestingLogs&) = delete;
  // Calls stop(), and waits for the store.
  ~RestingLogs();

  void add(LoggedSession session);
  // To be called about once a second: writes states that are due.
  void tend() { changed_.notify_all(); }
  // Makes every state due now, without the second at rest.
  void hurry();
  // Waits until all states have been written, for at most `at_most`. True when they have.
  bool wait_until_none(Duration at_most);
  // Writes no further state.
  void stop();
  // Waits until no state is being written, for at most `at_most`. True when none is.
  bool wait_until_idle(Duration at_most);

 private:
  struct Entry {
    LoggedSession session;
    TimePoint due;
  };
  struct Copy;

  void run();
  bool is_any_due() const;
  bool write(const LoggedSession& session);
  Code copy_state(const LoggedSession& session, Engine& engine, const std::shared_ptr<Copy>& copy);

  KeptSessions& kept_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // With mutex_ held.
  std::list<Entry> entries_;
  bool is_over_ = false;
  bool writes_ = false;
  std::thread thread_;
};

}  // namespace runnel
