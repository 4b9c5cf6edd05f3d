#include "server/host/callers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>

#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/network.h"
#include "config/key_file.h"
#include "engine/account_usage.h"

namespace runnel {
namespace {

constexpr std::string_view kScheme = "Bearer ";

Status unauthenticated(std::string message) {
  return Status(Code::kUnauthenticated, std::move(message)).with_reason("key");
}

// The first bytes of a digest, as a number. Nobody can choose these bytes, so the time of a search
// by them reveals nothing about a key.
uint64_t number_of(const KeyDigest& digest) {
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof(number));
  return number;
}

// The key in a value of "authorization"; none if it is not "Bearer KEY".
std::optional<std::string_view> bearer(std::string_view value) {
  if (value.size() <= kScheme.size()) return std::nullopt;
  if (strncasecmp(value.data(), kScheme.data(), kScheme.size()) != 0) return std::nullopt;
  return value.substr(kScheme.size());
}

std::string ipv6_network(const std::string& address) {
  sockaddr_storage storage{};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  ipv6.sin6_family = AF_INET6;
  if (inet_pton(AF_INET6, address.c_str(), &ipv6.sin6_addr) != 1) return address;
  return network_of(storage);
}

}  // namespace

struct Callers::Ring {
  struct Key {
    KeyDigest digest{};
    Caller caller;
  };
  std::unordered_map<uint64_t, Key> keys;  // by number_of() the digest
};

std::string peer_network(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  if (peer.starts_with("ipv4:")) return peer.substr(5, colon - 5);
  // A client may give its own end of a unix socket any path.
  if (peer.starts_with("unix:") || peer.starts_with("unix-abstract:")) return "unix";
  // "[" and "]" are percent-encoded.
  const size_t open = peer.find("%5B");
  const size_t close = peer.rfind("%5D");
  if (!peer.starts_with("ipv6:") || open != 5 || close == std::string::npos) return peer;
  const std::string address = peer.substr(8, close - 8);
  return ipv6_network(address.substr(0, address.find('%')));  // without its zone
}

Status Callers::ask_for_keys(const std::string& path) {
  path_ = path;
  stamp_ = file_stamp(path);
  return read({});  // no account has had a value yet
}

void Callers::refresh(const EventLog& log, TimePoint now) {
  if (path_.empty()) return;
  const FileStamp stamp = file_stamp(path_);
  if (stamp == stamp_) {
    complaint_.clear();
    return;
  }
  if (Status s = read(now); !s.ok()) {
    const std::string message = s.message() + "; the keys of before stay";
    if (message != complaint_) log.warn("keys", {{"message", message}});
    complaint_ = message;
    return;
  }
  stamp_ = stamp;
  complaint_.clear();
  log.info("keys", {{"keys", std::ssize(ring_.load()->keys)}});
}

// The usage of an account. It lives as long as anything counts against it.
std::shared_ptr<AccountUsage> Callers::usage_of(const std::string& name) {
  std::weak_ptr<AccountUsage>& known = accounts_[name];
  std::shared_ptr<AccountUsage> usage = known.lock();
  if (usage == nullptr) known = usage = std::make_shared<AccountUsage>();
  return usage;
}

// The last line of a name sets the quotas and rights of all its keys.
Status Callers::read(TimePoint now) {
  const Result<std::vector<KeyEntry>> entries = read_key_file(path_);
  if (!entries.ok()) return entries.status();
  auto ring = std::make_shared<Ring>();
  std::map<std::string, const KeyEntry*> last;
  for (const KeyEntry& entry : *entries) last[entry.name] = &entry;
  for (const KeyEntry& entry : *entries) {
    const KeyEntry& decides = *last.at(entry.name);
    const uint64_t number = number_of(entry.digest);
    Caller caller;
    caller.name = caller.account = entry.name;
    caller.models = decides.models;
    caller.admin = decides.admin;
    caller.limits = {.calls = decides.calls, .sessions = decides.sessions};
    caller.usage = usage_of(entry.name);
    caller.usage->set_values_per_second(decides.values_per_second.value_or(0), now);
    caller.key = number;
    ring->keys.emplace(number, Ring::Key{entry.digest, std::move(caller)});
  }
  ring_.store(std::move(ring));
  std::erase_if(accounts_, [](const auto& account) { return account.second.expired(); });
  return {};
}

Result<Caller> Callers::identify(std::span<const std::string_view> authorization,
                                 const std::string& peer) const {
  const auto ring = ring_.load();
  if (ring == nullptr) {
    Caller caller;
    caller.account = peer_network(peer);
    return caller;
  }
  if (authorization.empty()) {
    return unauthenticated(
        "this server asks for a key: send it as 'authorization: Bearer KEY', in the metadata of "
        "gRPC or a header of HTTP");
  }
  if (authorization.size() > 1) return unauthenticated("authorization is sent more than once");
  const auto key = bearer(authorization.front());
  if (!key) return unauthenticated("authorization is not of the form 'Bearer KEY'");
  const auto unknown = [] {
    return unauthenticated(
        "the key is not one of this server's: it is mistyped, or has been taken away; ask the "
        "server's operator for a new one");
  };
  if (std::ssize(*key) > kMaxKeyBytes) return unknown();
  const KeyDigest digest = digest_of_key(*key);
  const auto found = ring->keys.find(number_of(digest));
  if (found == ring->keys.end()) return unknown();
  if (!is_same(found->second.digest, digest)) return unknown();
  return found->second.caller;
}

std::shared_ptr<const Caller> Callers::as_of_now(const Caller& caller) const {
  const auto ring = ring_.load();
  if (ring == nullptr) return {std::shared_ptr<void>(), &caller};
  const auto found = ring->keys.find(caller.key);
  if (found == ring->keys.end()) return nullptr;
  return {ring, &found->second.caller};
}

}  // namespace runnel
