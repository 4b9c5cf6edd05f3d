#include "kernels/cpu/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace runnel::cpu {
namespace {

// A root directory with files that describe the machine's memory.
class MachineTest : public testing::Test {
 protected:
  MachineTest() : root_(testing::TempDir() + "machine_XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) std::abort();
    write("/proc/self/cgroup", "0::/\n");
    write("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\n");
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, FreeMemoryIsTheSystemsAvailableMemory) {
  EXPECT_EQ(find_free_memory(root_).bytes, 600 * 1024);
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(find_free_memory(root_).bytes, 600 * 1024);
}

TEST_F(MachineTest, FreeMemoryIsWithinTheControlGroupsLimit) {
  write("/sys/fs/cgroup/memory.max", "100000\n");
  write("/sys/fs/cgroup/memory.current", "70000\n");
  EXPECT_EQ(find_free_memory(root_).bytes, 30000);
  write("/sys/fs/cgroup/memory.stat", "anon 1\nactive_file 10\ninactive_file 20000\n");
  EXPECT_EQ(find_free_memory(root_).bytes, 50000);
  write("/sys/fs/cgroup/memory.current", "170000\n");
  EXPECT_EQ(find_free_memory(root_).bytes, 0);
}

TEST_F(MachineTest, NamesTheFileThatLimitsMemoryOrCores) {
  EXPECT_EQ(find_free_memory(root_).from, "available");
  write("/sys/fs/cgroup/memory.max", "100000\n");
  write("/sys/fs/cgroup/memory.current", "70000\n");
  EXPECT_EQ(find_free_memory(root_).from, "/sys/fs/cgroup/memory.max");
  EXPECT_EQ(find_usable_cores(root_).from, "affinity");
  const int all = find_usable_cores(root_).count;
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(find_usable_cores(root_).count, 1);
  EXPECT_EQ(find_usable_cores(root_).from, all > 1 ? "/sys/fs/cgroup/cpu.max" : "affinity");
}

TEST_F(MachineTest, ThisMachineHasMemoryAndCores) {
  EXPECT_GT(free_memory(), 0);
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace runnel::cpu
