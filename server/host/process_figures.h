// The system's figures for this process.
#pragma once

#include <cstdint>

namespace runnel {

struct ProcessFigures {
  double cpu_seconds = 0;    // used by all threads
  double start_seconds = 0;  // since 1970
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t open_files = 0;
  int64_t most_files = 0;  // the maximum number of open files
};

// The figures from /proc. A figure that /proc does not have is 0.
ProcessFigures process_figures();

}  // namespace runnel
