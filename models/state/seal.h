// What closes a state file: SHA-256 of all before it, or, with a key of the server's, HMAC-SHA-256,
// which only who has that key can make.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "base/status.h"

namespace runnel {

inline constexpr size_t kSealBytes = sizeof(Sha256Digest);
inline constexpr int64_t kLeastSealKeyBytes = 32;
inline constexpr int64_t kMostSealKeyBytes = 4096;

// A secret, and a name for it that gives nothing away.
struct SealKey {
  std::string secret;
  std::string id;  // 16 hexadecimal digits of HMAC-SHA-256 of a fixed text
};

// A key of these bytes.
SealKey make_seal_key(std::string secret);

// The key in a file: all of its bytes, kLeastSealKeyBytes to kMostSealKeyBytes. NOT_FOUND,
// INVALID_ARGUMENT also where others may read or change the file.
Result<SealKey> read_seal_key(const std::string& path);

class Seal {
 public:
  // `key` null: a digest. Throws std::bad_alloc where the library gets no memory.
  explicit Seal(const SealKey* key);

  void add(std::span<const std::byte> bytes);
  // Once, and last.
  Sha256Digest finish();

 private:
  std::optional<Sha256> digest_;                                   // without a key
  std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> mac_;  // with one
};

// Compares in a time that does not depend on the bytes.
bool is_same_seal(const Sha256Digest& seal, std::string_view found);

}  // namespace runnel
