// Certificates and keys for TLS, from PEM files: read within bounds, and checked before they are
// used.
#pragma once

#include <chrono>
#include <string>

#include "base/status.h"

namespace runnel {

// A certificate with its chain of issuers, and its private key.
struct Identity {
  std::string certificate, key;  // as PEM
  std::string subject, expires;  // of the first certificate: "CN=runnel", "2027-01-31T12:00:00Z"
  friend bool operator==(const Identity&, const Identity&) = default;
};

// Reads a certificate and its key from two files. Errors are those of read_file(), and
// INVALID_ARGUMENT which names the file that has no certificate or key, one that is encrypted or
// too weak, that is not valid at `now`, or both where the key is another certificate's.
Result<Identity> read_identity(const std::string& certificate_file, const std::string& key_file,
                               std::chrono::system_clock::time_point now);

// Reads the certificates of authorities, one or more, as PEM. Errors likewise.
Result<std::string> read_authorities(const std::string& file);

}  // namespace runnel
