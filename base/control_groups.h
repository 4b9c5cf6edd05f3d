// The limits of this process's control groups (cgroups(7)). The process's group and all ancestors
// that it can see may have limits, and the smallest one counts. Versions 1 and 2 are supported,
// also both at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace runnel {

struct CoreQuota {
  int cores = 0;     // rounded up, at least 1
  std::string file;  // the file with the limit
};

struct MemoryQuota {
  // Bytes left below the limit, plus cached files that are not in use; at least 0.
  int64_t free = 0;
  int64_t limit = 0;
  std::string file;  // the file with the limit
};

struct ThreadQuota {
  int64_t limit = 0;  // of threads and processes together
  std::string file;   // the file with the limit
};

class ControlGroups {
 public:
  // `root` is a prefix of the paths of the system's files.
  explicit ControlGroups(std::string root = "");

  // The limit on processor time: `cpu.max`, or `cpu.cfs_quota_us` of version 1. None if there is
  // no limit.
  std::optional<CoreQuota> cores() const;

  // The limit with the least memory left: `memory.max` and `memory.high` (above which the kernel
  // slows a process down), or `memory.limit_in_bytes` of version 1. None if there is no limit.
  std::optional<MemoryQuota> memory() const;

  // The smallest `pids.max`. None if there is no limit.
  std::optional<ThreadQuota> threads() const;

 private:
  // A mounted hierarchy, and the folders of this process's group and its ancestors.
  struct Hierarchy {
    bool version2 = false;
    std::vector<std::string> folders;
  };
  std::vector<Hierarchy> find(const std::string& controller) const;

  std::string root_;
  std::vector<Hierarchy> cores_, memory_, threads_;
};

}  // namespace runnel
