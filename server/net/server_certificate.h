// The certificate that a server shows, and whose certificates it takes: read from files, and again
// when they change.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/certificate.h"
#include "server/host/event_log.h"

namespace runnel {

// Paths of PEM files. Without a certificate there is no TLS; without authorities no client is asked
// for a certificate.
struct TlsFiles {
  std::string certificate, key, client_authorities;
};

class ServerCertificate {
 public:
  struct Contents {
    Identity identity;
    std::string client_authorities;
    friend bool operator==(const Contents&, const Contents&) = default;
  };

  // `log` outlives it.
  ServerCertificate(TlsFiles files, const EventLog& log) : files_(std::move(files)), log_(log) {}

  // The first look. INVALID_ARGUMENT or NOT_FOUND says which file cannot be used, and why.
  Status load();
  // To be called about once a second, by one thread: takes what has changed, or logs once why it
  // cannot be used and stays with what there is.
  void refresh();

  // Never null after load(); another pointer once it has changed. For any thread.
  std::shared_ptr<const Contents> current() const;
  bool asks_clients() const { return !files_.client_authorities.empty(); }

 private:
  Result<Contents> read() const;
  void use(Contents contents);

  const TlsFiles files_;
  const EventLog& log_;
  std::string complaint_;  // the last one that was logged, while it holds
  mutable std::mutex mutex_;
  std::shared_ptr<const Contents> current_;
};

}  // namespace runnel
