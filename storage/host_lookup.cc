#include "storage/host_lookup.h"

#include <sys/socket.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace runnel {
namespace {

// The addresses of a lookup.
struct Found {
  Found() = default;
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
  ~Found() {
    if (list != nullptr) freeaddrinfo(list);
  }

  addrinfo* list = nullptr;
};

addrinfo hints_of(int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  return hints;
}

}  // namespace

struct HostLookup::State {
  explicit State(Lookup from) : lookup(std::move(from)) {}

  const Lookup lookup;
  std::mutex mutex;
  std::condition_variable changed;
  // With the mutex held.
  bool runs = false;
  uint64_t ended = 0;  // number of lookups that have ended
  // The result of the last lookup that has ended.
  int error = 0;
  std::shared_ptr<const Found> found;
};

HostLookup::HostLookup(Lookup lookup) : state_(std::make_shared<State>(std::move(lookup))) {}

Result<HostLookup::Addresses> HostLookup::find(const std::string& host, const std::string& port,
                                               std::chrono::steady_clock::time_point until) {
  const addrinfo hints = hints_of(AI_NUMERICHOST | AI_NUMERICSERV);
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) == 0) {
    return Addresses(list, freeaddrinfo);
  }
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (!state.runs) {
    if (Status s = start(host, port); !s.ok()) return s;
  }
  const uint64_t wanted = state.ended + 1;
  const bool is_over = state.changed.wait_until(lock, until, [&] { return state.ended >= wanted; });
  if (!is_over) return Status(Code::kUnavailable, "the lookup of its name takes too long");
  if (state.error != 0) return Status(Code::kUnavailable, gai_strerror(state.error));
  return Addresses(state.found, state.found->list);
}

// To be called with the state's mutex held. The thread locks this mutex at its end, so it ends
// after this function. The thread's own code allocates no memory.
Status HostLookup::start(const std::string& host, const std::string& port) {
  const auto found = std::make_shared<Found>();
  try {
    std::thread([state = state_, found, host, port] {
      const addrinfo hints = hints_of(0);
      const int error = state->lookup(host.c_str(), port.c_str(), &hints, &found->list);
      std::lock_guard lock(state->mutex);
      state->runs = false;
      ++state->ended;
      state->error = error;
      state->found = found;
      state->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    return {Code::kUnavailable, "the system gives no thread for the lookup of its name"};
  }
  state_->runs = true;
  return {};
}

}  // namespace runnel
