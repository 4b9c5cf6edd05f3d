#include "models/state/seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/params.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/list_text.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr std::string_view kNamed = "runnel seal key id";
constexpr std::string_view kOwner = "runnel owner ";
constexpr const char* kWorks = "the seal of memory cannot fail in a working library";

using Mac = std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)>;

// For calls that can fail only in allocating memory: reports that failure.
void check_memory(bool made) {
  if (!made) throw std::bad_alloc();
}

EVP_MAC_CTX* new_mac() {
  const Mac mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free);
  check_memory(mac != nullptr);
  return EVP_MAC_CTX_new(mac.get());
}

// The first bytes of a text's seal, as hexadecimal digits.
std::string mark_of(const SealKey& key, std::string_view text, size_t bytes) {
  Seal seal(&key);
  seal.add(std::as_bytes(std::span(text)));
  return hex(as_text(seal.finish()).substr(0, bytes));
}

}  // namespace

SealKey make_seal_key(std::string secret) {
  SealKey key = {std::move(secret), ""};
  key.id = mark_of(key, kNamed, 8);
  return key;
}

std::string owner_mark(const SealKey& key, std::string_view name) {
  return mark_of(key, std::string(kOwner) + std::string(name), 16);
}

const SealKey* find_key(const SealKeys& keys, std::string_view id) {
  const auto found = std::ranges::find(keys, id, &SealKey::id);
  return found == keys.end() ? nullptr : &*found;
}

Result<SealKeys> read_seal_keys(const std::string& paths) {
  SealKeys keys;
  for (const std::string& path : split_list(paths)) {
    Result<SealKey> key = read_seal_key(path);
    if (!key.ok()) return key.status();
    if (find_key(keys, key->id) != nullptr) {
      return invalid_argument(printable(path, 400) +
                              ": the key is in seal_keys twice; name it once");
    }
    keys.push_back(std::move(*key));
  }
  if (!keys.empty() && keys.size() <= kMostSealKeys) return keys;
  return invalid_argument("seal_keys has " + std::to_string(keys.size()) +
                          " files; expected 1 to " + std::to_string(kMostSealKeys));
}

Result<SealKey> read_seal_key(const std::string& path) {
  const Result<RegularFile> file = RegularFile::open(path);
  if (!file.ok()) return file.status();
  if (Status s = file->check_private(); !s.ok()) return s;
  const std::string name = printable(path, 400);
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

Seal::Seal(const SealKey* key) : mac_(nullptr, EVP_MAC_CTX_free) {
  if (key == nullptr) {
    digest_.emplace();
    return;
  }
  mac_.reset(new_mac());
  char name[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                                   OSSL_PARAM_construct_end()};
  const auto* secret = reinterpret_cast<const unsigned char*>(key->secret.data());
  check_memory(mac_ && EVP_MAC_init(mac_.get(), secret, key->secret.size(), parameters) == 1);
}

void Seal::add(std::span<const std::byte> bytes) {
  if (digest_) return digest_->add(bytes);
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  check(EVP_MAC_update(mac_.get(), data, bytes.size()) == 1, kWorks);
}

Sha256Digest Seal::finish() {
  if (digest_) return digest_->finish();
  Sha256Digest sealed{};
  size_t count = 0;
  check(EVP_MAC_final(mac_.get(), sealed.data(), &count, sealed.size()) == 1, kWorks);
  return sealed;
}

bool is_same_seal(const Sha256Digest& seal, std::string_view found) {
  return found.size() == seal.size() && CRYPTO_memcmp(found.data(), seal.data(), seal.size()) == 0;
}

}  // namespace runnel
