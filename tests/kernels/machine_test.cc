#include "kernels/cpu/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace runnel::cpu {
namespace {

// A root directory with files that say how much memory there is.
class MachineTest : public testing::Test {
 protected:
  MachineTest() : root_(testing::TempDir() + "machine_XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) std::abort();
    write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\n");
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, FreeMemoryIsWhatTheSystemHasAvailable) {
  EXPECT_EQ(free_memory(root_), 600 * 1024);
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(free_memory(root_), 600 * 1024);
}

TEST_F(MachineTest, FreeMemoryIsWithinTheControlGroupsLimit) {
  write("/sys/fs/cgroup/memory.max", "100000\n");
  write("/sys/fs/cgroup/memory.current", "70000\n");
  EXPECT_EQ(free_memory(root_), 30000);
  write("/sys/fs/cgroup/memory.stat", "anon 1\nactive_file 10\ninactive_file 20000\n");
  EXPECT_EQ(free_memory(root_), 50000);
  write("/sys/fs/cgroup/memory.current", "170000\n");
  EXPECT_EQ(free_memory(root_), 0);
}

TEST_F(MachineTest, ThisMachineHasSome) {
  EXPECT_GT(free_memory(), 0);
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace runnel::cpu
