#include "kernels/cpu/machine.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

namespace runnel::cpu {
namespace {

int affine_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// A container's share (control groups, version 2): "200000 100000" is two cores, "max 100000" no
// limit.
int quota_cores(int otherwise) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return otherwise;
  return static_cast<int>(std::clamp((quota + period - 1) / period, 1.0, 4096.0));
}

// The number after a word in a file of lines such as "MemAvailable: 1234 kB"; none where it is not
// there.
std::optional<int64_t> number_after(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

// The only number of a file; none where it says "max", or is not there.
std::optional<int64_t> number_in(const std::string& path) {
  int64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

}  // namespace

std::string processor_vendor() {
  char name[12] = {};
#if defined(__x86_64__)
  unsigned most = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &most, &b, &c, &d) == 0) return "";
  std::memcpy(name, &b, 4);
  std::memcpy(name + 4, &d, 4);
  std::memcpy(name + 8, &c, 4);
#endif
  return std::string(name, strnlen(name, sizeof(name)));
}

bool has_tiles() {
#if defined(__x86_64__)
  constexpr unsigned kTilesOfBf16 = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTilesOfBf16) != 0 &&
         (d & kTiles) != 0;
#else
  return false;
#endif
}

bool may_use_tiles() {
#if defined(__x86_64__)
  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
  static const bool allowed = has_tiles() && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return allowed;
#else
  return false;
#endif
}

int64_t free_memory(const std::string& root) {
  constexpr int64_t kUnknown = int64_t{1} << 62;
  const auto available = number_after(root + "/proc/meminfo", "MemAvailable:");
  int64_t bytes = available ? *available * 1024 : kUnknown;
  // Control groups, version 2. Cached files that nobody reads make room.
  const std::string group = root + "/sys/fs/cgroup/memory.";
  const auto most = number_in(group + "max");
  const auto used = number_in(group + "current");
  if (most && used) {
    const int64_t cached = number_after(group + "stat", "inactive_file").value_or(0);
    bytes = std::min(bytes, *most - *used + cached);
  }
  return std::max<int64_t>(bytes, 0);
}

int usable_cores() {
  const int cores = std::max(affine_cores(), 1);
  return std::min(cores, quota_cores(cores));
}

}  // namespace runnel::cpu
