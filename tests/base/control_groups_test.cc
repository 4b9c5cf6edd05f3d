#include "base/control_groups.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace runnel {
namespace {

// The files of a system, in a temporary root directory.
class ControlGroupsTest : public testing::Test {
 protected:
  ControlGroupsTest() : root_(testing::TempDir() + "groups_XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) std::abort();
  }
  ~ControlGroupsTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }
  void version2(const std::string& group, const std::string& mounted_group = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "24 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n30 24 0:26 " +
                                      mounted_group +
                                      " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  void version1() const {
    write("/proc/self/cgroup",
          "9:name=systemd:/\n4:memory:/service/runnel\n2:cpu,cpuacct:/service\n0::/\n");
    write("/proc/self/mountinfo",
          "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
          "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
          "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
          "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  }
  // A group of version 2 with 1,000 bytes in use, of which 100 are inactive file pages.
  void use_memory(const std::string& folder) const {
    write(folder + "/memory.current", "1000\n");
    write(folder + "/memory.stat", "anon 900\ninactive_file 100\n");
  }

  std::string root_;
};

TEST_F(ControlGroupsTest, WithoutFilesThereIsNoLimit) {
  EXPECT_FALSE(ControlGroups(root_).cores());
  EXPECT_FALSE(ControlGroups(root_).memory());
  version2("/a/b");
  EXPECT_FALSE(ControlGroups(root_).cores());
  EXPECT_FALSE(ControlGroups(root_).memory());
}

TEST_F(ControlGroupsTest, Version2LimitsComeFromTheGroupOfTheProcess) {
  version2("/system.slice/runnel.service");
  const std::string own = "/sys/fs/cgroup/system.slice/runnel.service";
  write(own + "/cpu.max", "150000 100000\n");
  write(own + "/memory.max", "12000000\n");
  use_memory(own);
  const auto cores = ControlGroups(root_).cores();
  ASSERT_TRUE(cores);
  EXPECT_EQ(cores->cores, 2);
  EXPECT_EQ(cores->file, own + "/cpu.max");
  const auto memory = ControlGroups(root_).memory();
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit, 12000000);
  EXPECT_EQ(memory->free, 12000000 - 1000 + 100);
  EXPECT_EQ(memory->file, own + "/memory.max");
}

TEST_F(ControlGroupsTest, TheSmallestLimitOfAllAncestorsApplies) {
  version2("/a/b/c");
  write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  write("/sys/fs/cgroup/a/cpu.max", "20000 10000\n");
  write("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.max", "9000\n");
  write("/sys/fs/cgroup/a/memory.high", "8000\n");
  for (const char* group : {"a", "a/b", "a/b/c"}) {
    use_memory(std::string("/sys/fs/cgroup/") + group);
  }
  EXPECT_EQ(ControlGroups(root_).cores()->cores, 2);
  EXPECT_EQ(ControlGroups(root_).cores()->file, "/sys/fs/cgroup/a/cpu.max");
  EXPECT_EQ(ControlGroups(root_).memory()->limit, 8000);
  EXPECT_EQ(ControlGroups(root_).memory()->file, "/sys/fs/cgroup/a/memory.high");
  // A larger limit with less free memory takes precedence over a smaller one.
  write("/sys/fs/cgroup/a/b/memory.current", "8999\n");
  EXPECT_EQ(ControlGroups(root_).memory()->free, 101);
  EXPECT_EQ(ControlGroups(root_).memory()->limit, 9000);
  write("/sys/fs/cgroup/a/b/memory.current", "20000\n");
  EXPECT_EQ(ControlGroups(root_).memory()->free, 0);
}

TEST_F(ControlGroupsTest, LimitsOfVersion1AreInTheFoldersOfTheirControllers) {
  version1();
  write("/sys/fs/cgroup/cpu/service/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/service/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const std::string own = "/sys/fs/cgroup/memory/service/runnel";
  write(own + "/memory.limit_in_bytes", "9223372036854771712\n");
  write(own + "/memory.usage_in_bytes", "5\n");
  write("/sys/fs/cgroup/memory/service/memory.limit_in_bytes", "7000\n");
  write("/sys/fs/cgroup/memory/service/memory.usage_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/service/memory.stat", "inactive_file 1\ntotal_inactive_file 20\n");
  EXPECT_EQ(ControlGroups(root_).cores()->cores, 3);
  EXPECT_EQ(ControlGroups(root_).cores()->file, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  EXPECT_EQ(ControlGroups(root_).memory()->free, 6020);
  EXPECT_EQ(ControlGroups(root_).memory()->file,
            "/sys/fs/cgroup/memory/service/memory.limit_in_bytes");
}

TEST_F(ControlGroupsTest, ThreadsAreLimitedToo) {
  version2("/a/b");
  EXPECT_FALSE(ControlGroups(root_).threads());
  write("/sys/fs/cgroup/a/b/pids.max", "max\n");
  EXPECT_FALSE(ControlGroups(root_).threads());
  write("/sys/fs/cgroup/a/pids.max", "100\n");
  EXPECT_EQ(ControlGroups(root_).threads()->limit, 100);
  EXPECT_EQ(ControlGroups(root_).threads()->file, "/sys/fs/cgroup/a/pids.max");
}

// A container in the host's namespace of groups, with only its own part of the tree mounted.
TEST_F(ControlGroupsTest, AMountCanShowAPartOfTheTree) {
  version2("/docker/1234/inner", "/docker/1234");
  write("/sys/fs/cgroup/inner/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(ControlGroups(root_).cores()->file, "/sys/fs/cgroup/cpu.max");
  // For a group outside of the mounted part, the group at the mount counts.
  for (const char* group : {"/../other", "/docker/12345", "/elsewhere"}) {
    version2(group, "/docker/1234");
    EXPECT_EQ(ControlGroups(root_).cores()->file, "/sys/fs/cgroup/cpu.max") << group;
  }
}

TEST_F(ControlGroupsTest, IgnoresMalformedFiles) {
  version2("/a");
  for (const char* text : {"", "max", "0 100000", "-5 100000", "100000", "100000 0", "x y"}) {
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_FALSE(ControlGroups(root_).cores()) << text;
  }
  write("/sys/fs/cgroup/a/memory.max", "5000\n");
  EXPECT_FALSE(ControlGroups(root_).memory());  // the memory in use is unknown
  write("/proc/self/mountinfo",
        "x\n1 2 3\n1 2 3 4 5 6 - cgroup2\n30 24 0:26 /\\9 /a\\04 rw - cgroup2 c rw\n");
  write("/proc/self/cgroup", "\n:\n0\n0:\n0::\n");
  EXPECT_FALSE(ControlGroups(root_).cores());
}

}  // namespace
}  // namespace runnel
