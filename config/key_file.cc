#include "config/key_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "config/server_config.h"

namespace runnel {
namespace {

constexpr const char* kPrefix = "rnl_";
constexpr int kMode = 0600;
constexpr int kKept = 0640;  // the mode bits that are kept when a file is replaced
constexpr int kTries = 100;
constexpr auto kBetweenTries = std::chrono::milliseconds(30);
// Values in a line: the models and a few members.
constexpr JsonLimits kLineLimits{kMaxKeyLineBytes, kMaxModels + 16, 2};

KeyDigest read_digest(const Fields& fields, Faults& faults) {
  const std::string expected = "64 hexadecimal digits";
  const Json* member = fields.require("sha256", expected);
  KeyDigest digest{};
  if (member == nullptr) return digest;
  const auto bytes =
      member->is_string() ? bytes_of_hex(member->get_ref<const std::string&>()) : std::nullopt;
  if (!bytes || bytes->size() != digest.size()) {
    faults.add("sha256", expected, describe(*member));
    return digest;
  }
  std::ranges::copy(as_bytes(*bytes), digest.begin());
  return digest;
}

std::optional<int64_t> read_quota(const Fields& fields, const char* key) {
  if (fields.find(key) == nullptr) return std::nullopt;
  return fields.integer(key, 1, kMaxQuota);
}

std::string read_name(const Json* member, const std::string& key, Faults& faults) {
  if (member == nullptr) return "";
  if (!member->is_string() || !is_plain_name(member->get_ref<const std::string&>())) {
    faults.add(key, plain_name_text(), describe(*member));
    return "";
  }
  return member->get<std::string>();
}

std::optional<std::set<std::string>> read_models(const Fields& fields, Faults& faults) {
  const Json* member = fields.find("models");
  if (member == nullptr) return std::nullopt;
  if (!member->is_array()) {
    faults.add("models", "an array of names", describe(*member));
    return std::nullopt;
  }
  std::set<std::string> models;
  for (const Json& name : *member) models.insert(read_name(&name, "models", faults));
  if (std::ssize(models) > kMaxModels) {
    faults.add("models", "at most " + std::to_string(kMaxModels) + " names",
               std::to_string(models.size()));
  }
  return models;
}

Result<KeyEntry> parse_line(std::string_view line, const std::string& place) {
  const Result<Json> json = parse_json(line, place, kLineLimits);
  if (!json.ok()) return json.status();
  Faults faults(place);
  const Fields fields(
      faults, &*json, "",
      {"name", "sha256", "calls", "sessions", "values_per_second", "models", "admin"});
  KeyEntry entry;
  entry.name = read_name(fields.require("name", "a name"), "name", faults);
  entry.digest = read_digest(fields, faults);
  entry.calls = read_quota(fields, "calls");
  entry.sessions = read_quota(fields, "sessions");
  entry.values_per_second = read_quota(fields, "values_per_second");
  entry.models = read_models(fields, faults);
  entry.admin = fields.boolean("admin", false);
  if (!faults.ok()) return faults.status();
  return entry;
}

Status check_size(int64_t bytes, const std::string& name) {
  if (bytes <= kMaxKeyFileBytes) return {};
  return invalid_argument(name + ": expected at most " + std::to_string(kMaxKeyFileBytes) +
                          " bytes, found more");
}

// OK if the text of a file that is about to be written can be read again.
Status check_readable(const std::string& text, const std::string& name) {
  if (Status s = check_size(std::ssize(text), name); !s.ok()) return s;
  return parse_keys(text, name).status();
}

Result<std::vector<KeyEntry>> read_open(const RegularFile& file, const std::string& name) {
  if (Status s = file.check_private(); !s.ok()) return s;
  if (Status s = check_size(file.bytes(), name); !s.ok()) return s;
  const Result<std::string> text = file.read_head(kMaxKeyFileBytes);
  if (!text.ok()) return text.status();
  return parse_keys(*text, name);
}

// Returns whether `descriptor` is still the file at `path`: a change replaces the file.
bool is_at(const std::string& path, int descriptor) {
  struct stat there = {};
  struct stat here = {};
  return stat(path.c_str(), &there) == 0 && fstat(descriptor, &here) == 0 &&
         there.st_ino == here.st_ino && there.st_dev == here.st_dev;
}

// Opens and locks the file at `path`. Nobody else changes it until it is closed.
Result<RegularFile> lock_file(const std::string& path) {
  for (int i = 0; i < kTries; ++i) {
    Result<RegularFile> file = RegularFile::open(path);
    if (!file.ok()) return file;
    const bool locked = flock(file->descriptor(), LOCK_EX | LOCK_NB) == 0;
    if (locked && is_at(path, file->descriptor())) return file;
    if (!locked) std::this_thread::sleep_for(kBetweenTries);
  }
  return Status(Code::kAborted,
                printable(path, 400) + ": another program is changing it; try again");
}

// Makes an empty file, unless there is a file already.
Status make_file(const std::string& path) {
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kMode);
  if (made >= 0) {
    ::close(made);
    return {};
  }
  return invalid_argument(printable(path, 400) +
                          ": cannot be made: " + std::generic_category().message(errno));
}

}  // namespace

std::string new_key() {
  std::array<char, 32> bits{};
  check(getrandom(bits.data(), bits.size(), 0) == std::ssize(bits), "the system gives random bits");
  return kPrefix + hex(std::string_view(bits.data(), bits.size()));
}

KeyDigest digest_of_key(std::string_view key) { return sha256_of(std::as_bytes(std::span(key))); }

bool is_same(const KeyDigest& a, const KeyDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string key_id(const KeyEntry& entry) { return hex(as_text(entry.digest).substr(0, 8)); }

Result<std::vector<KeyEntry>> parse_keys(std::string_view text, const std::string& file) {
  std::vector<KeyEntry> entries;
  std::map<std::string, int64_t> line_of;  // by key_id()
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::string place = file + ": line " + std::to_string(line);
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<KeyEntry> entry = parse_line(words, place);
    if (!entry.ok()) return entry.status();
    const auto [other, is_new] = line_of.try_emplace(key_id(*entry), line);
    if (!is_new) {
      return invalid_argument(place + ": the key is that of line " + std::to_string(other->second) +
                              "; expected each key once");
    }
    entries.push_back(std::move(*entry));
    if (std::ssize(entries) > kMaxKeys) {
      return invalid_argument(place + ": expected at most " + std::to_string(kMaxKeys) +
                              " keys, found more");
    }
  }
  return entries;
}

std::string keys_text(const std::vector<KeyEntry>& entries) {
  std::string text;
  for (const KeyEntry& entry : entries) {
    OrderedJson line = {{"name", entry.name}, {"sha256", hex(as_text(entry.digest))}};
    if (entry.calls) line["calls"] = *entry.calls;
    if (entry.sessions) line["sessions"] = *entry.sessions;
    if (entry.values_per_second) line["values_per_second"] = *entry.values_per_second;
    if (entry.models) line["models"] = *entry.models;
    if (entry.admin) line["admin"] = true;
    text += json_text(line) + "\n";
  }
  return text;
}

Result<std::vector<KeyEntry>> read_key_file(const std::string& path) {
  const Result<RegularFile> file = RegularFile::open(path);
  if (!file.ok()) return file.status();
  return read_open(*file, printable(path, 400));
}

Status change_key_file(const std::string& path, bool create,
                       const std::function<Status(std::vector<KeyEntry>&)>& change) {
  if (create) {
    if (Status s = make_file(path); !s.ok()) return s;
  }
  std::error_code error;
  const std::filesystem::path place = std::filesystem::canonical(path, error);
  const std::string target = error ? path : place.string();  // the target, if the path is a link
  const Result<RegularFile> file = lock_file(target);
  if (!file.ok()) return file.status();
  Result<std::vector<KeyEntry>> entries = read_open(*file, printable(path, 400));
  if (!entries.ok()) return entries.status();
  Result<FileAccess> access = file->access();
  if (!access.ok()) return access.status();
  if (Status s = change(*entries); !s.ok()) return s;
  const std::string text = keys_text(*entries);
  if (Status s = check_readable(text, printable(path, 400)); !s.ok()) return s;
  access->mode &= kKept;
  return replace_file(target, text, *access);
}

}  // namespace runnel
