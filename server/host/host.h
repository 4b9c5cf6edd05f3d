// The host: the parts of a server that all doors share, from its first call to its last one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/token_limits.h"
#include "server/host/event_log.h"
#include "server/host/kept_sessions.h"
#include "server/host/server_context.h"

namespace runnel {

struct HostOptions {
  std::string version = {};    // of the program
  std::string keys = {};       // path of the file of keys; empty: clients need no key
  std::string seal_keys = {};  // paths of keys for state files, separated by commas; empty: none
  int64_t call_bytes = limits::kCallBytes.default_value;
  Delivery delivery;
  int64_t text_bytes = limits::kTextBytes.default_value;    // of one prompt or chunk to score
  int64_t samples = limits::kSamples.default_value;         // of one call, as for the engines
  int64_t max_values = limits::kMaxValues.default_value;    // of one call, as for the engines
  int64_t chat_values = limits::kChatValues.default_value;  // of an answer, by default
  Duration stall_timeout = std::chrono::milliseconds(limits::kStallTimeoutMs.default_value);
  Duration queue_time{}, http_queue_time{};  // of calls that do not say how long they wait
  int64_t token_bytes = limits::kTokenBytes.default_value;  // of a state, at most
  Duration token_ttl = std::chrono::milliseconds(limits::kTokenTtlMs.default_value);
  bool access_log = true;  // a line for each call
  StorageOptions storage = {};
};

// One thread calls open(), then ready(), then tend() about once a second, possibly unready(), and
// then refuse() and end_calls().
class Host {
 public:
  // `log` and `clock` must outlive the host.
  Host(const HostOptions& options, const EventLog& log, const Clock& clock);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Reads the keys and opens the store. Errors of read_key_file(), read_seal_keys() and
  // open_store().
  Status open();

  // The state that all doors' calls share. The calls must end before the host does.
  ServerContext& context() { return context_; }
  const ServerContext& context() const { return context_; }

  // Lets calls find the models.
  void ready();
  // Makes serving() false. Calls are served as before.
  void unready() { serving_.store(false, std::memory_order_release); }
  // True from ready() until unready() or refuse(). Any thread may call this.
  bool serving() const { return serving_.load(std::memory_order_acquire); }

  // To be called about once a second. Reads the keys again if their file has changed, and applies
  // the time limits of calls (LiveCall::tend()).
  void tend();

  // The permanent failure of a model's device. OK if no device has failed.
  Status failure() const;

  // Refuses new calls with UNAVAILABLE.
  void refuse();
  // To be called after refuse(). Waits for at most `grace` until the calls have ended, and calls
  // `tend` about once a second. Then it ends the remaining calls with UNAVAILABLE, and waits until
  // their sessions are saved, as states instead of logs. It returns at most one second after
  // `grace`. If the store is slow or does not answer, it returns about 11 seconds after `grace` at
  // the latest.
  void end_calls(Duration grace, const std::function<void()>& tend);

 private:
  bool wait_until_none(Duration at_most, const std::function<void()>& tend);

  const std::string keys_, seal_keys_;  // paths
  const StorageOptions storage_;
  const EventLog& log_;
  std::atomic<bool> serving_{false};
  ServerContext context_;
};

}  // namespace runnel
