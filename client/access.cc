#include "client/access.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "client/address.h"

namespace runnel {
namespace {

constexpr int64_t kMaxKeyBytes = 4096;
// Where systems keep the authorities they trust: Debian and Alpine, Fedora, SUSE, others.
constexpr const char* kSystemAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt",
                                              "/etc/pki/tls/certs/ca-bundle.crt",
                                              "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

Status read_authorities_of(const Target& target, Access& access) {
  if (!target.tls_ca.empty()) {
    access.authorities_file = target.tls_ca;
  } else {
    const auto* found = std::ranges::find_if(
        kSystemAuthorities, [](const char* file) { return RegularFile::open(file).ok(); });
    if (found == std::end(kSystemAuthorities)) {
      return not_found(std::string("this system has no list of authorities (") +
                       kSystemAuthorities[0] + "); give those to trust with --tls-ca FILE");
    }
    access.authorities_file = *found;
  }
  Result<std::string> pem = read_authorities(access.authorities_file);
  if (!pem.ok()) return pem.status();
  access.authorities = std::move(*pem);
  return {};
}

Status read_tls(const Target& target, Access& access) {
  if (target.tls_cert.empty() != target.tls_key.empty()) {
    return invalid_argument("--tls-cert and --tls-key go together: give both, or none");
  }
  if (Status s = read_authorities_of(target, access); !s.ok()) return s;
  const std::optional<HostPort> place = host_port_of(target.address);
  access.name = target.tls_name.empty() && place ? place->host : target.tls_name;
  if (target.tls_cert.empty()) return {};
  Result<Identity> identity =
      read_identity(target.tls_cert, target.tls_key, std::chrono::system_clock::now());
  if (!identity.ok()) return identity.status();
  access.identity = std::move(*identity);
  access.certificate_file = target.tls_cert;
  access.key_file = target.tls_key;
  return {};
}

Result<std::string> read_key(const Target& target) {
  if (target.api_key_file.empty()) return target.api_key;
  Result<std::string> key = read_file(target.api_key_file, kMaxKeyBytes);
  if (!key.ok()) return key;
  const size_t end = key->find_last_not_of(" \t\r\n");
  key->resize(end == std::string::npos ? 0 : end + 1);
  if (key->empty()) return invalid_argument(target.api_key_file + " has no key in it");
  return key;
}

// The error never shows the key itself.
Status check_key(const std::string& key, const Target& target, bool tls) {
  const bool plain = std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; });
  if (!plain || static_cast<int64_t>(key.size()) > kMaxKeyBytes) {
    return invalid_argument("the key is not one: it must be letters, digits and signs of ASCII, " +
                            std::to_string(kMaxKeyBytes) + " at most");
  }
  if (key.empty() || tls || target.plaintext_key || is_loopback(target.address)) return {};
  return invalid_argument(
      "the key would go to " + quote(target.address, 200) +
      " in the clear, for anyone on the way to read; use TLS (--tls, or --tls-ca FILE), or "
      "--plaintext-key where nobody else can listen");
}

}  // namespace

Result<Access> read_access(const Target& target) {
  if (Status form = check_server_address(target.address); !form.ok()) return form;
  Access access;
  access.address = target.address;
  access.tls = target.tls || !target.tls_ca.empty() || !target.tls_cert.empty() ||
               !target.tls_key.empty() || !target.tls_name.empty();
  if (access.tls) {
    if (Status s = read_tls(target, access); !s.ok()) return s;
  }
  Result<std::string> key = read_key(target);
  if (!key.ok()) return key.status();
  if (Status s = check_key(*key, target, access.tls); !s.ok()) return s;
  access.key = std::move(*key);
  return access;
}

}  // namespace runnel
