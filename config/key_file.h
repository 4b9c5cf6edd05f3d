// The file of keys: one JSON object a line, with a name, the SHA-256 of a key, and what its holder
// may use. The keys themselves are in no file. docs/configuration.md documents the form.
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
  std::string name;    // of who holds it, who may hold several
  KeyDigest digest{};  // the SHA-256 of the key
  std::optional<int64_t> calls, sessions, values_per_second;  // quotas; none: no such quota
  std::optional<std::set<std::string>> models;                // none: every model
  bool admin = false;                                         // may change what is served

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
// Takes as long whatever they are.
bool is_same(const KeyDigest& a, const KeyDigest& b);

// The first 16 hexadecimal digits of the digest: names a key without telling it.
std::string key_id(const KeyEntry& entry);

// Reads the text of a file, in its order. INVALID_ARGUMENT names `file`, the line, what was
// expected and what was found.
Result<std::vector<KeyEntry>> parse_keys(std::string_view text, const std::string& file);

// The text that parse_keys() reads.
std::string keys_text(const std::vector<KeyEntry>& entries);

// parse_keys() of a file. NOT_FOUND when there is no such file; INVALID_ARGUMENT also when its
// mode lets anybody but its owner write it, or anybody but its owner and group read it.
Result<std::vector<KeyEntry>> read_key_file(const std::string& path);

// Replaces the file by what `change` makes of its entries; other changes wait meanwhile. Owner,
// group and mode stay, and so does a symbolic link to the file. Where `create`, a file that is not
// there counts as empty, and is made with mode 0600. Errors of read_key_file(), of `change` and of
// replace_file(), after which the file is as it was; ABORTED when another change takes seconds.
Status change_key_file(const std::string& path, bool create,
                       const std::function<Status(std::vector<KeyEntry>&)>& change);

}  // namespace runnel
