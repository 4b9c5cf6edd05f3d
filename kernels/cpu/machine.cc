#include "kernels/cpu/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
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

}  // namespace

int usable_cores() {
  const int cores = std::max(affine_cores(), 1);
  return std::min(cores, quota_cores(cores));
}

}  // namespace runnel::cpu
