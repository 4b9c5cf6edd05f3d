// How a server is reached: plainly or by TLS, with a certificate and a key of one's own or without.
#pragma once

#include <string>

#include "base/certificate.h"
#include "base/status.h"

namespace runnel {

inline constexpr const char* kDefaultServer = "127.0.0.1:50051";

// A server as people name it.
struct Target {
  std::string address = kDefaultServer;
  bool tls = false;         // true, too, where one of the next four is given
  std::string tls_ca = {};  // PEM file of authorities; empty: the system's authorities
  std::string tls_cert = {}, tls_key = {};  // PEM files of the client's own certificate and its key
  std::string tls_name = {};  // in the server's certificate; empty: the host in the address
  std::string api_key = {};
  std::string api_key_file = {};  // holds the key; goes before api_key
  bool plaintext_key = false;     // the key may go to another machine without TLS
};

// The same with what the files hold.
struct Access {
  std::string address;
  bool tls = false;
  std::string authorities = {};  // PEM
  std::string authorities_file = {};
  Identity identity = {};  // empty: none
  std::string certificate_file = {}, key_file = {};
  std::string name = {};  // that the server's certificate must have; empty: as gRPC finds
  std::string key = {};   // empty: none
};

// Reads what a target names. INVALID_ARGUMENT and NOT_FOUND say which flag or file is wrong; a key
// that would go to another machine in the clear is INVALID_ARGUMENT, too, unless that is asked for.
Result<Access> read_access(const Target& target);

}  // namespace runnel
