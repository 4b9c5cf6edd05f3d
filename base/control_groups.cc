#include "base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/system_file.h"

namespace runnel {
namespace {

constexpr int kMaxCores = 4096;
constexpr int64_t kNoLimit = int64_t{1} << 62;  // version 1 writes a larger number for no limit

bool contains(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

// Spaces and similar characters are octal escapes in mountinfo: "\040".
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char_code = 0;
    const char* digits = text.data() + i + 1;
    const bool escaped = text[i] == '\\' && i + 3 < text.size() &&
                         std::from_chars(digits, digits + 3, char_code, 8).ptr == digits + 3;
    plain += escaped ? static_cast<char>(char_code) : text[i];
    if (escaped) i += 3;
  }
  return plain;
}

// A line of /proc/self/mountinfo (proc(5)): the group at the root of the mount, where it is
// mounted, its type and its options.
struct Mount {
  std::string group, folder, type, options;
};

std::optional<Mount> read_mount(const std::string& line) {
  std::istringstream words(line);
  std::string id, parent, device, own_options, word;
  Mount mount;
  words >> id >> parent >> device >> mount.group >> mount.folder >> own_options;
  while (words >> word && word != "-") {
  }
  if (!(words >> mount.type >> word)) return std::nullopt;
  words >> mount.options;
  mount.group = unescaped(mount.group);
  mount.folder = unescaped(mount.folder);
  return mount;
}

// The path of this process's group in the version 2 hierarchy, or in that of a version 1
// controller, from /proc/self/cgroup. Its lines are "4:memory:/a/b" and "0::/a/b".
std::optional<std::string> own_group(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool found = controller.empty() ? controllers.empty() : contains(controllers, controller);
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders of a group and its ancestors, from the group up to the mount point of the hierarchy.
std::vector<std::string> folders_of(const Mount& mount, const std::string& group) {
  const std::string below = mount.group == "/" ? "" : mount.group;
  // The path of a group outside of the mount begins with "/.." or with another name.
  const bool visible = group.starts_with(below + "/") && group.find("/..") == std::string::npos;
  std::string inside = visible ? group.substr(below.size()) : "";
  std::vector<std::string> folders;
  while (inside.size() > 1) {
    folders.push_back(mount.folder + inside);
    inside.resize(inside.rfind('/'));
  }
  folders.push_back(mount.folder);
  return folders;
}

}  // namespace

ControlGroups::ControlGroups(std::string root)
    : root_(std::move(root)),
      cores_(find("cpu")),
      memory_(find("memory")),
      threads_(find("pids")) {}

std::vector<ControlGroups::Hierarchy> ControlGroups::find(const std::string& controller) const {
  std::vector<Hierarchy> found;
  std::ifstream file(root_ + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::optional<Mount> mount = read_mount(line);
    if (!mount) continue;
    const bool version2 = mount->type == "cgroup2";
    if (!version2 && !(mount->type == "cgroup" && contains(mount->options, controller))) continue;
    const std::optional<std::string> group = own_group(root_, version2 ? "" : controller);
    if (group) found.push_back({version2, folders_of(*mount, *group)});
  }
  return found;
}

std::optional<CoreQuota> ControlGroups::cores() const {
  std::optional<CoreQuota> least;
  for (const Hierarchy& hierarchy : cores_) {
    for (const std::string& folder : hierarchy.folders) {
      const std::string file = folder + (hierarchy.version2 ? "/cpu.max" : "/cpu.cfs_quota_us");
      double quota = 0, period = 0;  // microseconds; one file in version 2; "max" or -1: no limit
      std::ifstream in(root_ + file);
      if (!(in >> quota) || quota <= 0) continue;
      std::ifstream other(root_ + folder + "/cpu.cfs_period_us");
      if (!((hierarchy.version2 ? in : other) >> period) || period <= 0) continue;
      const double share = std::clamp((quota + period - 1) / period, 1.0, double{kMaxCores});
      const int cores = static_cast<int>(share);
      if (!least || cores < least->cores) least = CoreQuota{cores, file};
    }
  }
  return least;
}

std::optional<ThreadQuota> ControlGroups::threads() const {
  std::optional<ThreadQuota> least;
  for (const Hierarchy& hierarchy : threads_) {
    for (const std::string& folder : hierarchy.folders) {
      const std::string file = folder + "/pids.max";
      const auto limit = number_in(root_ + file);
      if (limit && (!least || *limit < least->limit)) least = ThreadQuota{*limit, file};
    }
  }
  return least;
}

std::optional<MemoryQuota> ControlGroups::memory() const {
  std::optional<MemoryQuota> least;
  for (const Hierarchy& hierarchy : memory_) {
    for (const std::string& folder : hierarchy.folders) {
      const std::string at = root_ + folder;
      const auto used =
          number_in(at + (hierarchy.version2 ? "/memory.current" : "/memory.usage_in_bytes"));
      const auto cached = number_after(
          at + "/memory.stat", hierarchy.version2 ? "inactive_file" : "total_inactive_file");
      for (const char* name : {"/memory.max", "/memory.high", "/memory.limit_in_bytes"}) {
        const auto limit = number_in(at + name);
        if (!limit || !used || *limit >= kNoLimit) continue;
        const int64_t free = std::max<int64_t>(*limit - *used + cached.value_or(0), 0);
        if (!least || free < least->free) least = MemoryQuota{free, *limit, folder + name};
      }
    }
  }
  return least;
}

}  // namespace runnel
