// Identifies callers. If there is a file of keys, the caller is the owner of the key that the
// client sends. Otherwise clients need no key, and callers are distinguished by their addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/file_stamp.h"
#include "base/status.h"
#include "engine/caller.h"
#include "server/host/event_log.h"

namespace runnel {

// The network of a peer in gRPC's notation. For "ipv4:192.0.2.7:50051" it is "192.0.2.7", for
// "ipv6:%5B2001:db8:0:1::7%5D:50051" it is "2001:db8:0:1::/64", and for every unix socket it is
// "unix". Any other text is returned unchanged.
std::string peer_network(const std::string& peer);

class Callers {
 public:
  Callers() = default;
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  // Requires keys of the file from now on. Errors of read_key_file().
  Status ask_for_keys(const std::string& path);

  // True once ask_for_keys() has succeeded. Any thread may call this.
  bool has_keys() const { return ring_.load() != nullptr; }

  // To be called about once a second. Reads the file again if it has changed. If the file cannot be
  // used, the present keys stay, each call tries again, and each reason is logged once.
  void refresh(const EventLog& log, TimePoint now);

  // The caller who sends these values of "authorization". UNAUTHENTICATED if keys are required, and
  // the values contain no valid one.
  Result<Caller> identify(std::span<const std::string_view> authorization,
                          const std::string& peer) const;

  // The caller with the present rights of the same key. Null if the key has been removed. Without
  // keys, `caller` itself, which must then outlive the result.
  std::shared_ptr<const Caller> as_of_now(const Caller& caller) const;

 private:
  struct Ring;
  std::shared_ptr<AccountUsage> usage_of(const std::string& name);
  Status read(TimePoint now);

  // Only the thread that reads the file uses these.
  std::string path_;
  FileStamp stamp_;        // of the file that the keys were read from
  std::string complaint_;  // the reason that was logged last, until the file can be used
  std::map<std::string, std::weak_ptr<AccountUsage>> accounts_;  // by name; of keys and of sessions

  std::atomic<std::shared_ptr<const Ring>> ring_;  // null: clients need no key
};

}  // namespace runnel
