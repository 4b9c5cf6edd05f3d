#include "server/host/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

namespace runnel {
namespace {

// The start of the machine, in seconds since 1970.
double boot_seconds() {
  std::ifstream in("/proc/stat");
  for (std::string word; in >> word;) {
    double seconds = 0;
    if (word == "btime" && in >> seconds) return seconds;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// Reads the fields of proc_pid_stat(5) after the program's name, which may contain any character.
void read_stat(ProcessFigures& figures) {
  std::ifstream in("/proc/self/stat");
  in.ignore(std::numeric_limits<std::streamsize>::max(), ')');
  const auto skip = [&in](int fields) {
    for (std::string word; fields > 0 && in >> word;) --fields;
  };
  int64_t user = 0, system = 0, start = 0, pages = 0;
  skip(11);
  in >> user >> system;
  skip(6);
  in >> start >> figures.virtual_bytes >> pages;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  figures.cpu_seconds = static_cast<double>(user + system) / ticks;
  figures.start_seconds = boot_seconds() + static_cast<double>(start) / ticks;
  figures.resident_bytes = pages * sysconf(_SC_PAGESIZE);
}

int64_t count_open_files() {
  std::error_code error;
  int64_t files = 0;
  auto entry = std::filesystem::directory_iterator("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++files;
  return files;
}

}  // namespace

ProcessFigures process_figures() {
  ProcessFigures figures;
  read_stat(figures);
  figures.open_files = count_open_files();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    figures.most_files = static_cast<int64_t>(files.rlim_cur);
  }
  return figures;
}

}  // namespace runnel
