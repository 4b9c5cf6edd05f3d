// The file of keys. Each line is a JSON object with a name, the SHA-256 of a key, and the
// permissions and quotas of its holder. The keys themselves are in no file. docs/keys.md documents
// the form.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"

namespace runnel {

using KeyDigest = Sha256Digest;

struct KeyEntry {
  std::string name;    // of the key's holder; one holder may have several keys
  KeyDigest digest{};  // the SHA-256 of the key
  std::optional<int64_t> calls, sessions, values_per_second;  // quotas; none: no such quota
  std::optional<std::set<std::string>> models;                // none: every model
  bool admin = false;                                         // may change which models are served

  friend bool operator==(const KeyEntry&, const KeyEntry&) = default;
};

inline constexpr int64_t kMaxKeys = 10000;
inline constexpr int64_t kMaxKeyLineBytes = 16 << 10;
inline constexpr int64_t kMaxKeyFileBytes = 16 << 20;
inline constexpr int64_t kMaxKeyBytes = 512;  // of a key itself
inline constexpr int64_t kMaxQuota = 100'000'000;

// A new key: "rnl_" and 64 hexadecimal digits of 256 bits from the system.
std::string new_key();

KeyDigest digest_of_key(std::string_view key);
// Compares in constant time.
bool is_same(const KeyDigest& a, const KeyDigest& b);

// The first 16 hexadecimal digits of the digest. It names a key without revealing it.
std::string key_id(const KeyEntry& entry);

// Parses the text of a file. The entries keep their order. INVALID_ARGUMENT names `file`, the line,
// what was expected and what was found.
Result<std::vector<KeyEntry>> parse_keys(std::string_view text, const std::string& file);

// The text of a file with these entries, as parse_keys() reads it.
std::string keys_text(const std::vector<KeyEntry>& entries);

// Reads a file with parse_keys(). NOT_FOUND if there is no such file. INVALID_ARGUMENT also if the
// file's mode lets anyone but the owner write it, or anyone but the owner and the group read it.
Result<std::vector<KeyEntry>> read_key_file(const std::string& path);

// Lets `change` edit the entries, and replaces the file. Other changes wait until this one is done.
// The owner, the group and the mode stay, and so does a symbolic link to the file.
// - `create`: a file that does not exist counts as empty, and is made with mode 0600.
// - Errors are those of read_key_file(), of `change` and of replace_file(), ABORTED if another
//   change takes seconds, and INVALID_ARGUMENT if the changed file could not be read any more.
//   After an error the entries are as before.
Status change_key_file(const std::string& path, bool create,
                       const std::function<Status(std::vector<KeyEntry>&)>& change);

}  // namespace runnel
