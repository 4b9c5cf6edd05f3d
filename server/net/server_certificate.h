// The certificate of a server, and the authorities of client certificates. They are read from
// files, and read again when the files change.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/certificate.h"
#include "server/host/event_log.h"

namespace runnel {

// Paths of PEM files. Without a certificate there is no TLS. Without authorities, clients need no
// certificate.
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

  // `log` must outlive the object.
  ServerCertificate(TlsFiles files, const EventLog& log) : files_(std::move(files)), log_(log) {}

  // Reads the files for the first time. INVALID_ARGUMENT or NOT_FOUND says which file cannot be
  // used, and why.
  Status load();
  // To be called about once a second, by one thread. Reads files that have changed. If they cannot
  // be used, it keeps the present contents, and logs the reason once.
  void refresh();

  // The present contents. Never null after load(). A change makes a new object. Any thread may call
  // this.
  std::shared_ptr<const Contents> current() const;
  bool asks_clients() const { return !files_.client_authorities.empty(); }

 private:
  Result<Contents> read() const;
  void use(Contents contents);

  const TlsFiles files_;
  const EventLog& log_;
  std::string complaint_;  // the reason that was logged last, until the files can be used
  mutable std::mutex mutex_;
  std::shared_ptr<const Contents> current_;
};

}  // namespace runnel
