// Authorities and certificates that tests create when they need them.
#pragma once

#include <string>

#include "base/openssl.h"

namespace runnel {

struct PemPair {
  std::string certificate, key;
};

// Signs certificates that are valid from an hour ago, for a day.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);

  const std::string& pem() const { return pem_; }

  // `names` in OpenSSL's notation: "DNS:localhost,IP:127.0.0.1".
  PemPair issue(const std::string& subject, const std::string& names = "IP:127.0.0.1") const;

 private:
  std::string sign(const std::string& subject, EVP_PKEY* key, int extension,
                   const std::string& value) const;

  const std::string name_;
  const openssl::Key key_;
  const std::string pem_;
};

}  // namespace runnel
