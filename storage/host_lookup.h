// Looks up the addresses of a host within a time limit, which the system's own lookup does not
// have.
#pragma once

#include <netdb.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace runnel {

// Any thread may use it.
class HostLookup {
 public:
  using Addresses = std::shared_ptr<const addrinfo>;
  // A function with the parameters and the result of getaddrinfo(3).
  using Lookup = std::function<int(const char*, const char*, const addrinfo*, addrinfo**)>;

  // `lookup` replaces the system's lookup in tests.
  explicit HostLookup(Lookup lookup = getaddrinfo);
  HostLookup(const HostLookup&) = delete;
  HostLookup& operator=(const HostLookup&) = delete;

  // The addresses of `host`, which must be the same in every call. A numeric address needs no
  // lookup. UNAVAILABLE says why there are no addresses. A lookup that exceeds the time limit
  // continues on a separate thread, which ends with the process at the latest. While that lookup
  // runs, later calls wait for its result instead of starting another one, so there is at most one
  // such thread.
  Result<Addresses> find(const std::string& host, const std::string& port,
                         std::chrono::steady_clock::time_point until);

 private:
  struct State;

  Status start(const std::string& host, const std::string& port);

  const std::shared_ptr<State> state_;  // shared with the lookup's thread
};

}  // namespace runnel
