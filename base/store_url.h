// Parses the address of a store of sessions, in the form of the setting storage.url.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace runnel {

enum class StoreKind { kMemory, kDirectory, kRedis };

struct StoreUrl {
  StoreKind kind = StoreKind::kMemory;
  // kDirectory: the directory. kRedis: the unix socket, or empty to connect over TCP.
  std::string path = {};
  // Only with kRedis. `host` and `port` are empty with a unix socket.
  std::string user = {};  // empty: the default user
  std::string host = {}, port = {};
  int database = 0;
  bool tls = false;
};

// INVALID_ARGUMENT says what `url` must be. The message does not show a password.
Result<StoreUrl> parse_store_url(std::string_view url);

}  // namespace runnel
