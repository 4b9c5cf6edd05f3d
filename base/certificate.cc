#include "base/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/openssl.h"

namespace runnel {
namespace {

using openssl::Bio, openssl::Certificate, openssl::Context, openssl::Key;

constexpr int64_t kMaxPemBytes = 1 << 20;

// Without this callback, the library would prompt for a password at the terminal.
int no_password(char*, int, int, void*) { return 0; }

Bio reader(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// The library's text for its last error. Clears the thread's error queue, because the thread's next
// call would report the errors that are left as its own.
std::string library_error() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "no reason is known" : reason;
}

Result<std::vector<Certificate>> parse_certificates(const std::string& pem,
                                                    const std::string& file) {
  const Bio bio = reader(pem);
  std::vector<Certificate> all;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr)) {
    all.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string error = library_error();
  if (!at_end) {
    return invalid_argument(file + ": certificate " + std::to_string(all.size() + 1) +
                            " cannot be read: " + error);
  }
  if (all.empty()) {
    return invalid_argument(file +
                            " has no certificate; expected PEM: -----BEGIN CERTIFICATE-----");
  }
  return all;
}

Result<Key> parse_key(const std::string& pem, const std::string& file) {
  if (pem.find("ENCRYPTED") != std::string::npos) {
    return invalid_argument(file +
                            " is encrypted, and nobody is there to give the password; decrypt it "
                            "with 'openssl pkey', and let only the server read it");
  }
  Key key(PEM_read_bio_PrivateKey(reader(pem).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key) return key;
  return invalid_argument(file + " has no private key; expected PEM: -----BEGIN PRIVATE KEY-----");
}

std::string time_text(const ASN1_TIME* time) {
  std::tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

Status check_dates(const X509* certificate, const std::string& file, std::time_t now) {
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* to = X509_get0_notAfter(certificate);
  if (X509_cmp_time(to, &now) <= 0) {
    return invalid_argument(file + " expired at " + time_text(to) + "; put a new one in its place");
  }
  if (X509_cmp_time(from, &now) > 0) {
    return invalid_argument(file + " is not valid before " + time_text(from) +
                            "; is this machine's clock right?");
  }
  return {};
}

// Applies the library's policy against short keys and broken hashes, so that a violation shows here
// and not at the first connection.
Status check_strength(X509* certificate, const std::string& file) {
  const Context context(SSL_CTX_new(TLS_method()));
  if (context && SSL_CTX_use_certificate(context.get(), certificate) == 1) return {};
  return invalid_argument(file + " cannot be used for TLS: " + library_error());
}

std::string subject_of(const X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  return openssl::written(bio);
}

}  // namespace

Result<Identity> read_identity(const std::string& certificate_file, const std::string& key_file,
                               std::chrono::system_clock::time_point now) {
  Result<std::string> certificate = read_file(certificate_file, kMaxPemBytes);
  if (!certificate.ok()) return certificate.status();
  Result<std::string> key_pem = read_file(key_file, kMaxPemBytes);
  if (!key_pem.ok()) return key_pem.status();
  const auto chain = parse_certificates(*certificate, certificate_file);
  if (!chain.ok()) return chain.status();
  const Result<Key> key = parse_key(*key_pem, key_file);
  if (!key.ok()) return key.status();
  X509* own = chain->front().get();
  const bool together = X509_check_private_key(own, key->get()) == 1;
  ERR_clear_error();
  if (!together) {
    return invalid_argument(key_file + " is not the key of " + certificate_file +
                            ", whose own certificate comes first in it; give the two that were "
                            "made together");
  }
  if (Status s = check_strength(own, certificate_file); !s.ok()) return s;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  if (Status s = check_dates(own, certificate_file, seconds); !s.ok()) return s;
  return Identity{.certificate = std::move(*certificate),
                  .key = std::move(*key_pem),
                  .subject = subject_of(own),
                  .expires = time_text(X509_get0_notAfter(own))};
}

Result<std::string> read_authorities(const std::string& file) {
  Result<std::string> pem = read_file(file, kMaxPemBytes);
  if (!pem.ok()) return pem.status();
  const auto all = parse_certificates(*pem, file);
  if (!all.ok()) return all.status();
  return pem;
}

}  // namespace runnel
