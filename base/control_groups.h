// The limits of this process's control groups (cgroups(7)): the group that it is in and every
// ancestor that it can see have limits, and the smallest holds. Versions 1 and 2, and both at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace runnel {

struct CoreQuota {
  int cores = 0;     // rounded up, at least 1
  std::string file;  // that sets it
};

struct MemoryQuota {
  int64_t free = 0;  // bytes below the limit, cached files that nobody reads included; at least 0
  int64_t limit = 0;
  std::string file;  // that sets it
};

struct ThreadQuota {
  int64_t limit = 0;  // of threads and processes together
  std::string file;   // that sets it
};

class ControlGroups {
 public:
  // `root` is put before the paths of the system's files.
  explicit ControlGroups(std::string root = "");

  // The limit on processor time: `cpu.max`, or `cpu.cfs_quota_us` of version 1. None if there is
  // no limit.
  std::optional<CoreQuota> cores() const;

  // The limit of which the least is free: `memory.max` and `memory.high`, beyond which the kernel
  // slows a process down, or `memory.limit_in_bytes` of version 1. None if there is no limit.
  std::optional<MemoryQuota> memory() const;

  // The smallest `pids.max`. None if there is no limit.
  std::optional<ThreadQuota> threads() const;

 private:
  // A hierarchy that is mounted, with the folders of this process's group and its ancestors.
  struct Hierarchy {
    bool version2 = false;
    std::vector<std::string> folders;
  };
  std::vector<Hierarchy> find(const std::string& controller) const;

  std::string root_;
  std::vector<Hierarchy> cores_, memory_, threads_;
};

}  // namespace runnel
