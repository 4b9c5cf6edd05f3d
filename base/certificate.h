// Reads certificates and keys for TLS from PEM files, within bounds, and checks them before they
// are used.
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
// INVALID_ARGUMENT with the name of the file:
// - it has no certificate or no key;
// - its certificate or key is encrypted, too weak, or not valid at `now`;
// - the key belongs to another certificate; the message then names both files.
Result<Identity> read_identity(const std::string& certificate_file, const std::string& key_file,
                               std::chrono::system_clock::time_point now);

// Reads one or more CA certificates, as PEM. Errors are those of read_identity().
Result<std::string> read_authorities(const std::string& file);

}  // namespace runnel
