// The last bytes of a state file. Without a key they are the SHA-256 of all bytes before them. With
// a key of the server they are the HMAC-SHA-256, which only a holder of that key can make.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"

namespace runnel {

inline constexpr size_t kSealBytes = sizeof(Sha256Digest);
inline constexpr int64_t kLeastSealKeyBytes = 32;
inline constexpr int64_t kMostSealKeyBytes = 4096;
inline constexpr size_t kMostSealKeys = 16;

// A secret, and a name for it that reveals nothing about it.
struct SealKey {
  std::string secret;
  std::string id;  // 16 hexadecimal digits of HMAC-SHA-256 of a fixed text
};

// Makes a key from a secret.
SealKey make_seal_key(std::string secret);

// Reads a key from a file: all of its bytes, kLeastSealKeyBytes to kMostSealKeyBytes. NOT_FOUND or
// INVALID_ARGUMENT; the latter also if others may read or change the file.
Result<SealKey> read_seal_key(const std::string& path);

// The keys of a server. The first one seals files, and all of them open files. Not empty.
using SealKeys = std::vector<SealKey>;

// Reads the keys from the files in `paths`, which are separated by commas. There may be at most
// kMostSealKeys, all different. Errors are those of read_seal_key(), and INVALID_ARGUMENT.
Result<SealKeys> read_seal_keys(const std::string& paths);

// The key with this id; null if there is none.
const SealKey* find_key(const SealKeys& keys, std::string_view id);

// Represents an owner in a seal, so that nobody without the key learns or can guess the name: 32
// hexadecimal digits of HMAC-SHA-256.
std::string owner_mark(const SealKey& key, std::string_view name);

class Seal {
 public:
  // `key` null: computes a digest. Throws std::bad_alloc if OpenSSL cannot allocate memory.
  explicit Seal(const SealKey* key);

  void add(std::span<const std::byte> bytes);
  // To be called once, after all bytes.
  Sha256Digest finish();

 private:
  std::optional<Sha256> digest_;                                   // without a key
  std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> mac_;  // with a key
};

// Compares in constant time.
bool is_same_seal(const Sha256Digest& seal, std::string_view found);

}  // namespace runnel
