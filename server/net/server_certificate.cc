#include "server/net/server_certificate.h"

#include <utility>

namespace runnel {

Status ServerCertificate::load() {
  Result<Contents> found = read();
  if (!found.ok()) return found.status();
  use(std::move(*found));
  return {};
}

void ServerCertificate::refresh() {
  Result<Contents> found = read();
  if (!found.ok()) {
    const std::string complaint = found.status().message();
    if (complaint == complaint_) return;
    complaint_ = complaint;
    log_.warn("certificate", {{"message", complaint + "; the one that was read before stays"}});
    return;
  }
  complaint_.clear();
  if (*found != *current()) use(std::move(*found));
}

std::shared_ptr<const ServerCertificate::Contents> ServerCertificate::current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

Result<ServerCertificate::Contents> ServerCertificate::read() const {
  Contents contents;
  Result<Identity> identity =
      read_identity(files_.certificate, files_.key, std::chrono::system_clock::now());
  if (!identity.ok()) return identity.status();
  contents.identity = std::move(*identity);
  if (asks_clients()) {
    Result<std::string> authorities = read_authorities(files_.client_authorities);
    if (!authorities.ok()) return authorities.status();
    contents.client_authorities = std::move(*authorities);
  }
  return contents;
}

void ServerCertificate::use(Contents contents) {
  log_.info("certificate", {{"subject", contents.identity.subject},
                            {"expires", contents.identity.expires},
                            {"clients", std::string(asks_clients() ? "need one" : "need none")}});
  auto next = std::make_shared<const Contents>(std::move(contents));
  std::lock_guard lock(mutex_);
  current_ = std::move(next);
}

}  // namespace runnel
