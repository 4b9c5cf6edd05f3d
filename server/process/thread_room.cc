#include "server/process/thread_room.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/control_groups.h"
#include "server/host/kept_sessions.h"

namespace runnel {
namespace {

// Signals, reloads, keys, tasks, bodies, three listeners, and two for HTTP.
constexpr int64_t kOfTheProcess = 12;
constexpr int64_t kOfAModel = 2;  // its engine, and the one that replaces it in a reload
// gRPC 1.51: pollers of calls, timers, events. Its two executors grow to two threads per processor
// if closures wait for one. On large machines they stay far below that.
constexpr int64_t kOfGrpc = 12;
constexpr int64_t kOfGrpcEachProcessor = 4, kMostOfExecutors = 64;

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

// The limits on threads, to append to a message: "; the user may have 100 (ulimit -u, LimitNPROC)".
std::string limits_on_threads() {
  std::string text;
  rlimit user{}, addresses{};
  getrlimit(RLIMIT_NPROC, &user);
  getrlimit(RLIMIT_AS, &addresses);
  if (user.rlim_cur != RLIM_INFINITY) {
    text += "; the user may have " + limit_text(user.rlim_cur) + " (ulimit -u, LimitNPROC)";
  }
  if (const auto group = ControlGroups().threads()) {
    text += "; the control group may have " + std::to_string(group->limit) + " (" + group->file +
            ": TasksMax, --pids-limit)";
  }
  if (addresses.rlim_cur != RLIM_INFINITY) {
    text += "; the process may have " + limit_text(addresses.rlim_cur) +
            " bytes of addresses (ulimit -v, LimitAS)";
  }
  return text.empty() ? "; see kernel.threads-max" : text;
}

}  // namespace

int64_t threads_for(const ServerConfig& config) {
  const int64_t cores = std::max(1L, sysconf(_SC_NPROCESSORS_CONF));
  const int64_t computing =
      config.threads > 0 ? config.threads : std::max(1U, std::thread::hardware_concurrency());
  const int64_t executors = std::min(kOfGrpcEachProcessor * cores, kMostOfExecutors);
  const int64_t storing = config.storage_url.empty() ? 0 : KeptSessions::kAllThreads;
  return storing + kOfTheProcess + kOfAModel * std::ssize(config.models) + computing + kOfGrpc +
         executors;
}

std::string no_thread_text(const std::system_error& error) {
  return std::string("the system gives no thread: ") + error.what() + limits_on_threads();
}

Status check_threads(int64_t needed, int64_t bytes) {
  std::latch allocated(needed), checked(1);
  std::vector<std::thread> threads;
  Status status;
  try {
    threads.reserve(static_cast<size_t>(needed));
    while (std::ssize(threads) < needed) {
      threads.emplace_back([&] {
        // At a thread's first allocation, malloc may reserve an arena for it (64 MiB of addresses).
        ::operator delete(::operator new(1, std::nothrow));
        allocated.count_down();
        checked.wait();
      });
    }
  } catch (const std::exception&) {  // std::system_error, or std::bad_alloc
    status = {Code::kResourceExhausted, "the system gives this process " +
                                            std::to_string(threads.size()) +
                                            " more threads, and a server of these settings needs " +
                                            std::to_string(needed) + limits_on_threads()};
  }
  if (status.ok()) {
    allocated.wait();
    status = check_addresses(bytes);
  }
  checked.count_down();
  for (std::thread& thread : threads) thread.join();
  return status;
}

Status check_addresses(int64_t bytes) {
  if (bytes <= 0) return {};
  const auto size = static_cast<size_t>(bytes);
  void* const room =
      mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    munmap(room, size);
    return {};
  }
  rlimit addresses{};
  getrlimit(RLIMIT_AS, &addresses);
  return {Code::kResourceExhausted,
          "a server of these settings may need " + std::to_string(bytes) +
              " bytes more, and the process may have " + limit_text(addresses.rlim_cur) +
              " bytes of addresses in all (ulimit -v, LimitAS): raise it, or lower "
              "limits.connections, limits.network_bytes and limits.call_bytes"};
}

}  // namespace runnel
