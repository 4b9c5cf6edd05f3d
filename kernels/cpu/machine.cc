#include "kernels/cpu/machine.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/control_groups.h"
#include "base/system_file.h"

namespace runnel::cpu {
namespace {

constexpr int kMostProcessors = 1 << 16;  // more than any kernel supports

// The mask must be as long as the kernel's, which may have more processors than a cpu_set_t.
int affine_cores() {
  for (int most = CPU_SETSIZE; most <= kMostProcessors; most *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(most), [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(most);
    if (mask != nullptr && sched_getaffinity(0, bytes, mask.get()) == 0) {
      return std::max(CPU_COUNT_S(bytes, mask.get()), 1);
    }
  }
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
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

FreeMemory find_free_memory(const std::string& root) {
  constexpr int64_t kUnknown = int64_t{1} << 62;
  const auto available = number_after(root + "/proc/meminfo", "MemAvailable:");
  const FreeMemory system = {available ? *available * 1024 : kUnknown, "available"};
  const std::optional<MemoryQuota> quota = ControlGroups(root).memory();
  return quota && quota->free < system.bytes ? FreeMemory{quota->free, quota->file} : system;
}

int64_t free_memory() { return find_free_memory().bytes; }

UsableCores find_usable_cores(const std::string& root) {
  const UsableCores affine = {affine_cores(), "affinity"};
  const std::optional<CoreQuota> quota = ControlGroups(root).cores();
  return quota && quota->cores < affine.count ? UsableCores{quota->cores, quota->file} : affine;
}

int usable_cores() { return find_usable_cores().count; }

}  // namespace runnel::cpu
