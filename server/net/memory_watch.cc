#include "server/net/memory_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace runnel {

MemoryWatch::MemoryWatch() : statm_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {}

void MemoryWatch::allow(const MemoryAllowance& allowance) {
  std::lock_guard lock(mutex_);
  allowance_ = allowance;
}

int64_t MemoryWatch::excess(int64_t connections, int64_t calls, int64_t more) const {
  std::lock_guard lock(mutex_);
  if (allowance_.fixed == 0) return 0;
  return resident() - allowance_.fixed - connections * allowance_.per_connection -
         calls * allowance_.per_call - more;
}

// The second number in proc_pid_statm(5), in pages.
int64_t MemoryWatch::resident() const {
  std::array<char, 128> text{};
  if (pread(statm_.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
  const char* second = std::strchr(text.data(), ' ');
  return second == nullptr ? 0 : std::strtoll(second, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

}  // namespace runnel
