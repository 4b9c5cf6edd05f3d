// How a client reaches a server: with or without TLS, a client certificate and an API key.
#pragma once

#include <string>

#include "base/certificate.h"
#include "base/status.h"

namespace runnel {

inline constexpr const char* kDefaultServer = "127.0.0.1:50051";

// A server as the user names it.
struct Target {
  std::string address = kDefaultServer;
  bool tls = false;         // also on if one of the next four is given
  std::string tls_ca = {};  // PEM file of authorities; empty: the system's authorities
  std::string tls_cert = {}, tls_key = {};  // PEM files of the client's own certificate and its key
  std::string tls_name = {};  // expected in the server's certificate; empty: the address's host
  std::string api_key = {};
  std::string api_key_file = {};  // a file with the key; takes precedence over api_key
  bool plaintext_key = false;     // allows sending the key to another machine without TLS
};

// A Target whose files have been read: certificates and keys are held as text.
struct Access {
  std::string address;
  bool tls = false;
  std::string authorities = {};  // PEM
  std::string authorities_file = {};
  Identity identity = {};  // empty: none
  std::string certificate_file = {}, key_file = {};
  std::string name = {};  // expected in the server's certificate; empty: gRPC decides
  std::string key = {};   // empty: none
};

// Reads the files that a target names. INVALID_ARGUMENT and NOT_FOUND say which flag or file is
// wrong. A key that would go to another machine without TLS is INVALID_ARGUMENT, too, unless
// plaintext_key allows it.
Result<Access> read_access(const Target& target);

}  // namespace runnel
