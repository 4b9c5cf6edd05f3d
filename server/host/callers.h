// Who calls. Where there is a file of keys, the key that a client shows says so; otherwise nobody
// is asked, and callers are told apart by their addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file_stamp.h"
#include "base/status.h"
#include "engine/caller.h"
#include "server/host/event_log.h"

namespace runnel {

// The network of a peer as gRPC writes it: "192.0.2.7" of "ipv4:192.0.2.7:50051",
// "2001:db8:0:1::/64" of "ipv6:%5B2001:db8:0:1::7%5D:50051", otherwise the text as it is.
std::string peer_network(const std::string& peer);

class Callers {
 public:
  Callers() = default;
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  // From here on asks for the keys of the file. Errors of read_key_file().
  Status ask_for_keys(const std::string& path);

  // True once ask_for_keys() has succeeded. From any thread.
  bool has_keys() const { return ring_.load() != nullptr; }

  // To be called now and then: reads the file again where it has changed. While it cannot be used,
  // the keys stay, each call tries again, and each reason is logged once.
  void refresh(const EventLog& log);

  // The caller who sends these values of "authorization". UNAUTHENTICATED where keys are asked for
  // and this is not one of them.
  Result<Caller> identify(std::span<const std::string_view> authorization,
                          const std::string& peer) const;

  // The caller with the rights that the same key has now; null when the key has been taken away.
  // Without keys `caller` itself, which must then outlive the answer.
  std::shared_ptr<const Caller> as_of_now(const Caller& caller) const;

 private:
  struct Ring;
  std::shared_ptr<AccountUsage> usage_of(const std::string& name);
  Status read();

  // The thread that reads the file.
  std::string path_;
  FileStamp stamp_;        // of the file that the keys are of
  std::string complaint_;  // the last one in the log, until the file can be used
  std::map<std::string, std::weak_ptr<AccountUsage>> accounts_;  // by name; of keys and of sessions

  std::atomic<std::shared_ptr<const Ring>> ring_;  // null: nobody is asked for a key
};

}  // namespace runnel
