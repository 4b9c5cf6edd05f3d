// The last bytes of a state file: SHA-256 of all before, or, with a key of the server's,
// HMAC-SHA-256, which only a holder of that key can make.
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

// The keys of a server: the first seals, and all open. Not empty.
using SealKeys = std::vector<SealKey>;

// The keys in the files that `paths` names, separated by commas; at most kMostSealKeys, each once.
// Errors of read_seal_key(), INVALID_ARGUMENT.
Result<SealKeys> read_seal_keys(const std::string& paths);

// The key with this id; null if there is none.
const SealKey* find_key(const SealKeys& keys, std::string_view id);

// Stands for an owner in a seal, so that nobody without the key learns or guesses the name: 32
// hexadecimal digits of HMAC-SHA-256.
std::string owner_mark(const SealKey& key, std::string_view name);

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
