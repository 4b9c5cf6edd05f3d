#include "models/state/seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>

#include <new>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr std::string_view kNamed = "runnel seal key id";
constexpr int kForbidden = 027;  // writable by the group, or open to others
constexpr const char* kWorks = "digests of memory cannot fail in a working library";

using Mac = std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)>;

// What a working library can fail at, because it allocates.
void check_memory(bool made) {
  if (!made) throw std::bad_alloc();
}

EVP_MAC_CTX* new_mac(const SealKey* key) {
  if (key == nullptr) return nullptr;
  const Mac mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free);
  check_memory(mac != nullptr);
  return EVP_MAC_CTX_new(mac.get());
}

}  // namespace

SealKey make_seal_key(std::string secret) {
  SealKey key = {std::move(secret), ""};
  Seal seal(&key);
  seal.add(std::as_bytes(std::span(kNamed)));
  const auto sealed = seal.finish();
  key.id = hex(std::string_view(reinterpret_cast<const char*>(sealed.data()), 8));
  return key;
}

Result<SealKey> read_seal_key(const std::string& path) {
  const Result<RegularFile> file = RegularFile::open(path);
  if (!file.ok()) return file.status();
  const Result<FileAccess> access = file->access();
  if (!access.ok()) return access.status();
  const std::string name = printable(path, 400);
  if ((access->mode & kForbidden) != 0) {
    return invalid_argument(name +
                            ": others may read or change it; expected mode 0600, or 0640 "
                            "for a group that reads it: chmod 600 it");
  }
  Result<std::string> secret = file->read_head(kMostSealKeyBytes + 1);
  if (!secret.ok()) return secret.status();
  const auto bytes = static_cast<int64_t>(secret->size());
  if (bytes < kLeastSealKeyBytes || bytes > kMostSealKeyBytes) {
    return invalid_argument(name + ": expected " + std::to_string(kLeastSealKeyBytes) + " to " +
                            std::to_string(kMostSealKeyBytes) + " bytes of a key, found " +
                            (bytes > kMostSealKeyBytes ? "more" : std::to_string(bytes)) +
                            "; make one with: head -c 32 /dev/urandom");
  }
  return make_seal_key(std::move(*secret));
}

Seal::Seal(const SealKey* key)
    : digest_(key == nullptr ? EVP_MD_CTX_new() : nullptr, EVP_MD_CTX_free),
      mac_(new_mac(key), EVP_MAC_CTX_free) {
  if (key == nullptr) {
    check_memory(digest_ && EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr) == 1);
    return;
  }
  char name[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                                   OSSL_PARAM_construct_end()};
  const auto* secret = reinterpret_cast<const unsigned char*>(key->secret.data());
  check_memory(mac_ && EVP_MAC_init(mac_.get(), secret, key->secret.size(), parameters) == 1);
}

void Seal::add(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const int done = mac_ ? EVP_MAC_update(mac_.get(), data, bytes.size())
                        : EVP_DigestUpdate(digest_.get(), data, bytes.size());
  check(done == 1, kWorks);
}

std::array<std::byte, kSealBytes> Seal::finish() {
  std::array<std::byte, kSealBytes> sealed{};
  auto* out = reinterpret_cast<unsigned char*>(sealed.data());
  size_t count = 0;
  const int done = mac_ ? EVP_MAC_final(mac_.get(), out, &count, sealed.size())
                        : EVP_DigestFinal_ex(digest_.get(), out, nullptr);
  check(done == 1, kWorks);
  return sealed;
}

bool is_same_seal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace runnel
