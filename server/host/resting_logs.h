// Sessions at rest whose last calls are in a log. After a second of rest the state of such a
// session is written in place of its log, so that few loads have a log to replay. Calls do not wait
// for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "server/host/memory_budget.h"
#include "server/host/served_models.h"

namespace runnel {

class KeptSessions;

// A session after a call that was logged.
struct LoggedSession {
  std::weak_ptr<const ServedModel> model;
  SessionKey key;
  int64_t saved = 0;  // Record::saved
  int64_t position = 0;
};

// Any thread may call any function; none blocks but wait_until_none().
class RestingLogs {
 public:
  // `kept` outlives it.
  explicit RestingLogs(KeptSessions& kept) : kept_(kept) {}
  RestingLogs(const RestingLogs&) = delete;
  RestingLogs& operator=(const RestingLogs&) = delete;

  // Replaces the entry for the record `key`.
  void add(const std::string& key, LoggedSession session);
  // The session has no log any more, or is not here any more.
  void remove(const std::string& key);

  // To be called about once a second: begins to write states that are due.
  void tend();
  // From here on every state is due at once.
  void hurry();
  // Waits until all states have been written, for at most `at_most`. True when they have.
  bool wait_until_none(Duration at_most);
  // From here on nothing more begins.
  void stop();

 private:
  enum class Pace { kRest, kHurry, kStopped };
  struct Entry {
    LoggedSession session;
    TimePoint since{};         // when it came to rest, or could not be written
    bool was_put_off = false;  // the latter
    bool is_taken = false;     // by a Writing
  };
  class Writing;

  bool begins_alone();
  bool is_due(const std::string& key, const Entry& entry) const;
  std::shared_ptr<Writing> take_due();
  void begin_due();
  void end(const std::string& key, int64_t saved, bool is_over);

  KeptSessions& kept_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // With mutex_ held.
  std::map<std::string, Entry> entries_;
  Pace pace_ = Pace::kRest;
  int running_ = 0;
  bool is_beginning_ = false;  // a thread is in begin_due()
};

}  // namespace runnel
