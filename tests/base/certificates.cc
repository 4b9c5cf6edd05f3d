#include "tests/base/certificates.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>

namespace runnel {
namespace {

using openssl::Bio;
using openssl::Certificate;
using openssl::Key;

constexpr long kHour = 3600;

void set_name(X509_NAME* name, const std::string& common) {
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common.c_str()), -1, -1, 0);
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name)
    : name_(name),
      key_(EVP_EC_gen("P-256")),
      pem_(sign(name, key_.get(), NID_basic_constraints, "critical,CA:TRUE")) {}

PemPair TestAuthority::issue(const std::string& subject, const std::string& names) const {
  const Key key(EVP_EC_gen("P-256"));
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {.certificate = sign(subject, key.get(), NID_subject_alt_name, names),
          .key = openssl::written(bio)};
}

std::string TestAuthority::sign(const std::string& subject, EVP_PKEY* key, int extension,
                                const std::string& value) const {
  static std::atomic<long> serial{1};
  const Certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kHour);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 23 * kHour);
  set_name(X509_get_subject_name(certificate.get()), subject);
  set_name(X509_get_issuer_name(certificate.get()), name_);
  X509_set_pubkey(certificate.get(), key);
  X509_EXTENSION* says = X509V3_EXT_conf_nid(nullptr, nullptr, extension, value.c_str());
  X509_add_ext(certificate.get(), says, -1);
  X509_EXTENSION_free(says);
  EXPECT_GT(X509_sign(certificate.get(), key_.get(), EVP_sha256()), 0);
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate.get());
  return openssl::written(bio);
}

}  // namespace runnel
